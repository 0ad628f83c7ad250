"""cuda.bindings.runtime on the software GPU: a function works, or says that it is missing."""

from __future__ import annotations

import sys
import textwrap

from helpers.driver.driver_process import run_driver
from helpers.repository.subprocesses import start

from cudasync.softgpu.abi.runtime.chapters import entries
from cudasync.softgpu.abi.runtime.table import FORWARDED
from cudasync.softgpu.abi.stub import registry

IMPORT = """
    from cuda.bindings import runtime as r
    def done(result):
        assert result[0] == r.cudaError_t.cudaSuccess, result
        return result[1] if len(result) == 2 else result[1:]
"""


def test_it_works_in_the_driver_s_current_context_and_else_in_the_primary_one():
    program = """
    print(done(r.cudaGetDevice()), done(r.cudaGetDeviceCount()))
    done(r.cudaSetDevice(1))
    print(int(ok(d.cuCtxGetCurrent())) == int(contexts[1]))
    memory = done(r.cudaMalloc(64))
    where = d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    print(ok(d.cuPointerGetAttribute(where, memory)))
    mine = create_context()
    print(done(r.cudaGetDevice()))
    def other():
        print(done(r.cudaGetDevice()))
        done(r.cudaFree(0))
        print(int(ok(d.cuCtxGetCurrent())) == int(contexts[0]))
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    print(r.cudaSetDevice(7)[0].name)
    """
    lines = run_driver(IMPORT + program, devices=2).splitlines()
    expected = ["0 2", "True", "1", "0", "0", "True", "cudaErrorInvalidDevice"]
    assert lines == expected


def test_it_initialises_by_itself():
    program = textwrap.dedent("""
    from cudasync.softgpu import install
    install()
    from cuda.bindings import driver, runtime
    print(driver.cuDeviceGetCount()[0].name)
    print(runtime.cudaDeviceSynchronize()[0].name)
    print(driver.cuDeviceGetCount())
    """)
    code, printed = start([sys.executable, "-c", program], 60)
    assert code == 0, printed
    lines = printed.splitlines()
    assert lines[:2] == ["CUDA_ERROR_NOT_INITIALIZED", "cudaSuccess"]
    assert "CUDA_SUCCESS" in lines[2]


def test_imported_before_they_are_as_nvidia_made_them():
    program = textwrap.dedent("""
    from cuda.bindings import runtime
    from cudasync.softgpu import install
    install()
    print(runtime.cudaDeviceSynchronize()[0].name)
    """)
    code, printed = start([sys.executable, "-c", program], 60)
    assert code == 0, printed
    # The runtime of the oldest bindings is written with the driver's functions.
    assert printed.strip() in ("cudaErrorSymbolNotFound", "cudaSuccess")


def test_each_thread_has_its_last_error():
    program = """
    done(r.cudaFree(0))
    wrong = r.cudaMemcpy(8, 8, 8, r.cudaMemcpyKind.cudaMemcpyDefault)
    print(wrong[0].name)
    names = []
    thread = threading.Thread(target=lambda: names.append(r.cudaGetLastError()[0].name))
    thread.start()
    thread.join()
    names += [ask()[0].name for ask in (r.cudaPeekAtLastError, r.cudaGetLastError)]
    print(names, r.cudaGetLastError()[0].name)
    """
    name = "cudaErrorInvalidValue"
    lines = run_driver(IMPORT + program).splitlines()
    assert lines == [name, f"['cudaSuccess', '{name}', '{name}'] cudaSuccess"]


def test_a_fault_is_an_error_of_both():
    program = """
    done(r.cudaFree(0))
    ok(set_word(8, 1))
    print(r.cudaDeviceSynchronize()[0].name, code(d.cuCtxSynchronize()))
    done(r.cudaDeviceReset())
    done(r.cudaFree(done(r.cudaMalloc(4))))
    """
    expected = "cudaErrorIllegalAddress ILLEGAL_ADDRESS\n"
    assert run_driver(IMPORT + program) == expected


def test_what_is_not_there_says_so_once():
    program = """
    for _ in range(2):
        print(r.cudaDeviceGetNvSciSyncAttributes(0, 0, 0)[0].name, flush=True)
    print(r.cudaGetErrorString(r.cudaError_t.cudaErrorInvalidValue)[1])
    """
    out = run_driver(IMPORT + program).splitlines()
    told = [line for line in out if "is not supported" in line]
    assert len(told) == 1
    assert (
        "cudaDeviceGetNvSciSyncAttributes is not supported: the software GPU has only the core"
        in told[0]
    )
    assert out.count("cudaErrorNotSupported") == 2
    assert "b'invalid argument'" in out


def test_a_forked_child_is_not_initialised():
    program = """
    done(r.cudaFree(0))
    pid = os.fork()
    if pid == 0:
        os.write(1, f"{r.cudaMalloc(4)[0].name} {r.cudaGetDeviceCount()[0].name}\\n".encode())
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    """
    name = "cudaErrorInitializationError"
    assert run_driver(IMPORT + program) == f"{name} {name}\n"


def test_what_is_forwarded_is_a_function_of_the_driver_s():
    for name, (of_driver, version, _) in FORWARDED.items():
        assert registry.find(of_driver, version) is not None, name
    assert len(entries()) > len(FORWARDED) > 100


def test_arguments_are_those_of_the_installed_bindings():
    program = """
    import ctypes
    import cuda.bindings.cyruntime as c
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_void_p, [ctypes.py_object]
    from cudasync.softgpu.abi.runtime.chapters import KINDS
    from cudasync.softgpu.abi.marshalling.signature_letters import kinds_of
    signatures = {n: ctypes.string_at(name_of(each)).decode() for n, each in c.__pyx_capi__.items()}
    here = [name for name in KINDS if name in signatures]
    other = {name for name in here if kinds_of(signatures[name]) != KINDS[name]}
    from cuda.bindings import __version__
    # What CUDA 13 gave another signature is refused under older bindings.
    assert not other or __version__ < "13", other
    assert len(here) > 100
    assert kinds_of("cudaError_t (struct cudaPitchedPtr, int, struct cudaExtent)") == "SiS"
    """
    assert run_driver(program) == ""


def test_properties_are_the_driver_s_attributes():
    program = """
    said = done(r.cudaGetDeviceProperties(1))
    of = d.CUdevice_attribute
    for name, number in (("warpSize", of.CU_DEVICE_ATTRIBUTE_WARP_SIZE),
                         ("minor", of.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
                         ("major", of.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                         ("pciBusID", of.CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
                         ("multiProcessorCount", of.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
                         ("cooperativeLaunch", of.CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH),
                         ("clusterLaunch", of.CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH)):
        assert getattr(said, name) == ok(d.cuDeviceGetAttribute(number, 1)), name
    assert said.totalGlobalMem == ok(d.cuDeviceTotalMem(1))
    assert said.uuid.bytes == ok(d.cuDeviceGetUuid(1)).bytes
    assert said.name.partition(b"\\0")[0] == ok(d.cuDeviceGetName(64, 1)).partition(b"\\0")[0]
    assert said.maxThreadsDim == [1024, 1024, 64]
    print(r.cudaGetDeviceProperties(2)[0].name)
    """
    assert run_driver(IMPORT + program, devices=2) == "cudaErrorInvalidDevice\n"


def test_boxes_and_graphs_are_described_as_the_runtime_has_them():
    program = """
    extent = r.make_cudaExtent(5, 3, 2)
    box = done(r.cudaMalloc3D(extent))
    assert (box.xsize, box.ysize) == (5, 3) and box.pitch % 16 == 0
    done(r.cudaMemset3D(box, 7, r.make_cudaExtent(box.pitch, 3, 2)))
    done(r.cudaMemset3D(box, 0x101, r.make_cudaExtent(4, 2, 2)))
    rows = bytearray(6 * 6)
    done(r.cudaMemcpy2D(rows, 6, box.ptr, box.pitch, 5, 6, r.cudaMemcpyKind.cudaMemcpyDefault))
    lines = [bytes(rows[6 * n : 6 * n + 6]).hex() for n in range(6)]
    print(lines[0], lines[2], lines[3] == lines[0], lines[5] == lines[2])
    copy = r.cudaMemcpy3DParms()
    copy.srcPtr, copy.dstPtr, copy.kind = box, done(r.cudaMalloc3D(extent)), 4
    copy.extent = extent
    graph = done(r.cudaGraphCreate(0))
    first = done(r.cudaGraphAddMemcpyNode(graph, None, 0, copy))
    said = done(r.cudaGraphMemcpyNodeGetParams(first))
    assert int(said.dstPtr.ptr) == int(copy.dstPtr.ptr) and said.extent.depth == 2
    back = bytearray(5)
    second = done(r.cudaGraphAddMemcpyNode1D(graph, [first], 1, back, copy.dstPtr.ptr, 5, 2))
    assert done(r.cudaGraphGetNodes(graph, 9))[1] == 2
    executable = done(r.cudaGraphInstantiate(graph, 0))
    stream = done(r.cudaStreamCreate())
    done(r.cudaGraphLaunch(executable, stream))
    done(r.cudaStreamSynchronize(stream))
    print(back.hex())
    pitched = done(r.cudaMallocPitch(5, 2))
    done(r.cudaMemset2DAsync(pitched[0], pitched[1], 9, 5, 2, stream))
    done(r.cudaMemcpyPeerAsync(copy.dstPtr.ptr, 0, pitched[0], 0, 5, stream))
    done(r.cudaMemcpy(back, copy.dstPtr.ptr, 5, r.cudaMemcpyKind.cudaMemcpyDefault))
    print(back.hex())
    wrong = r.cudaMemcpy2D(rows, 4, box.ptr, box.pitch, 5, 6, r.cudaMemcpyKind.cudaMemcpyDefault)
    print(wrong[0].name)
    """
    printed = run_driver(IMPORT + program).splitlines()
    assert printed == [
        "010101010700 070707070700 True True",
        "0101010107",
        "0909090909",
        "cudaErrorInvalidValue",
    ]


def test_arrays_are_made_copied_and_described():
    program = """
    f = r.cudaChannelFormatKind.cudaChannelFormatKindFloat
    desc = r.cudaChannelFormatDesc()
    desc.x, desc.f = 32, f
    image, back = np.arange(24, dtype=np.float32), np.zeros(24, np.float32)
    kinds = r.cudaMemcpyKind
    array = done(r.cudaMallocArray(desc, 6, 4, 0))
    there = (image.ctypes.data, 24, 24, 4, kinds.cudaMemcpyHostToDevice)
    done(r.cudaMemcpy2DToArray(array, 0, 0, *there))
    other = done(r.cudaMallocArray(desc, 6, 4, 0))
    d2d = kinds.cudaMemcpyDeviceToDevice
    done(r.cudaMemcpy2DArrayToArray(other, 0, 0, array, 0, 0, 24, 4, d2d))
    home = kinds.cudaMemcpyDeviceToHost
    done(r.cudaMemcpy2DFromArray(back.ctypes.data, 24, other, 8, 1, 16, 3, home))
    print(back.reshape(4, 6)[:3, :4].tolist() == image.reshape(4, 6)[1:, 2:].tolist())
    print(r.cudaMemcpy2DFromArray(back.ctypes.data, 8, other, 8, 1, 16, 3, home)[0].name)
    found, extent, flags = done(r.cudaArrayGetInfo(array))
    print(found.x, found.y, found.f == f, extent.width, extent.height, extent.depth, flags)
    box = r.cudaMemcpy3DParms()
    cube = done(r.cudaMalloc3DArray(desc, r.make_cudaExtent(3, 2, 4), 1))
    box.srcPtr = r.make_cudaPitchedPtr(image.ctypes.data, 12, 3, 2)
    box.dstArray, box.extent = cube, r.make_cudaExtent(3, 2, 4)
    box.kind = kinds.cudaMemcpyHostToDevice
    done(r.cudaMemcpy3D(box))
    box = r.cudaMemcpy3DParms()
    box.srcArray, box.srcPos = cube, r.make_cudaPos(1, 0, 2)
    back[:] = 0
    box.dstPtr = r.make_cudaPitchedPtr(back.ctypes.data, 8, 2, 2)
    box.extent, box.kind = r.make_cudaExtent(2, 2, 2), home
    done(r.cudaMemcpy3D(box))
    print(back[:8].tolist() == image.reshape(4, 2, 3)[2:, :, 1:].ravel().tolist())
    mipmap = done(r.cudaMallocMipmappedArray(desc, r.make_cudaExtent(8, 8, 0), 3, 0))
    level = done(r.cudaGetMipmappedArrayLevel(mipmap, 2))
    print(done(r.cudaArrayGetInfo(level))[1].width)
    desc.y = 8
    print(r.cudaMallocArray(desc, 6, 4, 0)[0].name)
    for each in (array, other, cube):
        done(r.cudaFreeArray(each))
    done(r.cudaFreeMipmappedArray(mipmap))
    """
    lines = run_driver(IMPORT + "    import numpy as np\n" + program).splitlines()
    assert lines == [
        "True",
        "cudaErrorInvalidPitchValue",
        "32 0 True 6 4 0 0",
        "True",
        "2",
        "cudaErrorInvalidChannelDescriptor",
    ]


def test_textures_and_surfaces_are_made_and_described():
    program = """
    desc = r.cudaChannelFormatDesc()
    desc.x = desc.y = desc.z = desc.w = 8
    desc.f = r.cudaChannelFormatKind.cudaChannelFormatKindUnsigned
    array = done(r.cudaMallocArray(desc, 6, 4, r.cudaArraySurfaceLoadStore))
    of = r.cudaResourceDesc()
    of.resType, of.res.array.array = r.cudaResourceType.cudaResourceTypeArray, array
    how = r.cudaTextureDesc()
    how.addressMode = [r.cudaTextureAddressMode(n) for n in (0, 2, 3)]
    how.normalizedCoords, how.borderColor = 1, [1, 2, 3, 4]
    how.filterMode = r.cudaTextureFilterMode.cudaFilterModeLinear
    print(r.cudaCreateTextureObject(of, how, None)[0].name)
    how.readMode = r.cudaTextureReadMode.cudaReadModeNormalizedFloat
    texture = done(r.cudaCreateTextureObject(of, how, None))
    found = done(r.cudaGetTextureObjectTextureDesc(texture))
    print([int(m) for m in found.addressMode], found.readMode.name, found.normalizedCoords)
    found = done(r.cudaGetTextureObjectResourceDesc(texture))
    print(int(found.res.array.array) == int(array))
    surface = done(r.cudaCreateSurfaceObject(of))
    found = done(r.cudaGetSurfaceObjectResourceDesc(surface))
    print(int(found.res.array.array) == int(array))
    done(r.cudaDestroySurfaceObject(surface))
    done(r.cudaDestroyTextureObject(texture))
    print(r.cudaDestroyTextureObject(texture)[0].name)
    memory = done(r.cudaMalloc(256))
    of.resType = r.cudaResourceType.cudaResourceTypeLinear
    of.res.linear.devPtr, of.res.linear.sizeInBytes = memory, 64
    desc.x, desc.y, desc.z, desc.w = 32, 0, 0, 0
    of.res.linear.desc = desc
    how.filterMode = r.cudaTextureFilterMode.cudaFilterModePoint
    print(r.cudaCreateTextureObject(of, how, None)[0].name)
    how.readMode = r.cudaTextureReadMode.cudaReadModeElementType
    row = done(r.cudaCreateTextureObject(of, how, None))
    whole = done(r.cudaGetTextureObjectResourceDesc(row))
    found = whole.res.linear
    print(int(found.devPtr) == int(memory), found.sizeInBytes, found.desc.x, found.desc.y)
    """
    lines = run_driver(IMPORT + program).splitlines()
    assert lines == [
        "cudaErrorInvalidFilterSetting",
        "[0, 2, 3] cudaReadModeNormalizedFloat 1",
        "True",
        "True",
        "cudaErrorInvalidValue",
        "cudaErrorInvalidNormSetting",
        "True 64 32 0",
    ]
