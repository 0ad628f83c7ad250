"""Distributed: ranks and servers, which are started and timed, and a simulation of many."""
