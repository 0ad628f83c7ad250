"""Cellar, jit. The function that checks lanes which meet, and the lanes that they name."""

from __future__ import annotations

from typing import Final

from cudasync.softgpu.interface.convergence_records import Ask
from cudasync.softgpu.jit.convergence.function_parts import BEGIN, HEADER, THERE, ask

MEET_NAME: Final = "@cudasync.converge.meet"
# Lanes meet. All is well if the lanes that each lane names are here, and name the same lanes.
MEET: Final = f"""
define void {MEET_NAME}({HEADER}, ptr %members, i32 %spacing, i64 %line, i64 %what) nounwind {{
{BEGIN}
  br i1 %is.waiting, label %ask, label %look
look:
{THERE}
  %absent = xor i32 %mask, -1
  %are.one = icmp eq i32 %spacing, 0
  br label %next
next:
  %left = phi i32 [%mask, %look], [%rest, %well]
  %is.over = icmp eq i32 %left, 0
  br i1 %is.over, label %leave, label %lane
lane:
  %index = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %place = mul i32 %index, %spacing
  %members.at = getelementptr i64, ptr %members, i32 %place
  %member.word = load i64, ptr %members.at
  %member = trunc i64 %member.word to i32
  br i1 %are.one, label %group, label %several
several:
  %all = load <32 x i64>, ptr %members, align 8
  %one = insertelement <32 x i64> poison, i64 %member.word, i32 0
  %each = shufflevector <32 x i64> %one, <32 x i64> poison, <32 x i32> zeroinitializer
  %are.same = icmp eq <32 x i64> %all, %each
  %alike = bitcast <32 x i1> %are.same to i32
  br label %group
group:
  %same = phi i32 [-1, %lane], [%alike, %several]
  %own = and i32 %same, %mask
  %others = xor i32 %own, -1
  ; Who names others than those that are here with the same mask, and who is not named itself.
  %named = and i32 %member, %living
  %missing = and i32 %named, %others
  %not.named = xor i32 %member, -1
  %strangers = and i32 %own, %not.named
  %wrong = or i32 %missing, %strangers
  %rest = and i32 %left, %others
  %is.well = icmp eq i32 %wrong, 0
  br i1 %is.well, label %well, label %ask
well:
  br label %next
ask:
  %members.address = ptrtoint ptr %members to i64
  %wide.spacing = zext i32 %spacing to i64
  {
    ask(
        Ask.MEETING,
        "%wide.warp",
        "%wide.mask",
        "%members.address",
        "%wide.spacing",
        "%line",
        "%what",
    )
}
  br label %leave
leave:
  ret void
}}
"""
