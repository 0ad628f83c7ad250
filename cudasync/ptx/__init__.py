"""Floor 0. PTX: text in, values out. Lexer, parser, typed IR and access analysis."""
