"""Cellar, abi. Runtime API, Graph Management: functions that forward to the driver's."""

from __future__ import annotations

from cudasync.softgpu.abi.runtime.table import forward

forward(
    """
    cudaDeviceGetGraphMemAttribute iip
    cudaDeviceSetGraphMemAttribute iip
    cudaDeviceGraphMemTrim i
    cudaGraphAddChildGraphNode pppzp
    cudaGraphAddDependencies ppppz cuGraphAddDependencies 12030
    cudaGraphAddEmptyNode pppz
    cudaGraphAddEventRecordNode pppzp
    cudaGraphAddEventWaitNode pppzp
    cudaGraphAddHostNode pppzp
    cudaGraphAddKernelNode pppzp
    cudaGraphAddMemAllocNode pppzp
    cudaGraphAddMemFreeNode pppzp
    cudaGraphChildGraphNodeGetGraph pp
    cudaGraphClone pp
    cudaGraphCreate pu
    cudaGraphDebugDotPrint ppu
    cudaGraphDestroy p
    cudaGraphDestroyNode p
    cudaGraphEventRecordNodeGetEvent pp
    cudaGraphEventRecordNodeSetEvent pp
    cudaGraphEventWaitNodeGetEvent pp
    cudaGraphEventWaitNodeSetEvent pp
    cudaGraphExecChildGraphNodeSetParams ppp
    cudaGraphExecDestroy p
    cudaGraphExecEventRecordNodeSetEvent ppp
    cudaGraphExecEventWaitNodeSetEvent ppp
    cudaGraphExecGetFlags pp
    cudaGraphExecGetId pp
    cudaGraphExecHostNodeSetParams ppp
    cudaGraphExecKernelNodeSetParams ppp
    cudaGraphExecUpdate ppp cuGraphExecUpdate 12000
    cudaGraphGetEdges ppppp cuGraphGetEdges 12030
    cudaGraphGetId pp
    cudaGraphGetNodes ppp
    cudaGraphGetRootNodes ppp
    cudaGraphHostNodeGetParams pp
    cudaGraphHostNodeSetParams pp
    cudaGraphInstantiate ppl cuGraphInstantiateWithFlags
    cudaGraphInstantiateWithFlags ppl
    cudaGraphInstantiateWithParams ppp
    cudaGraphKernelNodeCopyAttributes pp
    cudaGraphKernelNodeGetAttribute pip
    cudaGraphKernelNodeGetParams pp
    cudaGraphKernelNodeSetAttribute pip
    cudaGraphKernelNodeSetParams pp
    cudaGraphLaunch pp
    cudaGraphMemAllocNodeGetParams pp
    cudaGraphMemFreeNodeGetParams pp
    cudaGraphMemsetNodeGetParams pp
    cudaGraphMemsetNodeSetParams pp
    cudaGraphNodeFindInClone ppp
    cudaGraphNodeGetContainingGraph pp
    cudaGraphNodeGetDependencies pppp cuGraphNodeGetDependencies 12030
    cudaGraphNodeGetDependentNodes pppp cuGraphNodeGetDependentNodes 12030
    cudaGraphNodeGetEnabled ppp
    cudaGraphNodeGetLocalId pp
    cudaGraphNodeGetToolsId pp
    cudaGraphNodeGetType pp
    cudaGraphNodeSetEnabled ppu
    cudaGraphReleaseUserObject ppu
    cudaGraphRemoveDependencies ppppz cuGraphRemoveDependencies 12030
    cudaGraphRetainUserObject ppuu
    cudaGraphUpload pp
    cudaUserObjectCreate pppuu
    cudaUserObjectRelease pu
    cudaUserObjectRetain pu
    """
)
