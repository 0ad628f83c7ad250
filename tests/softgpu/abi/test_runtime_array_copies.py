"""The runtime's copies of a byte count to and from arrays go through the arrays' rows, in order."""

from __future__ import annotations

from helpers.driver.driver_process import run_driver

IMPORT = """
    import ctypes
    from cuda.bindings import runtime as r
    def done(result):
        assert result[0] == r.cudaError_t.cudaSuccess, result
        return result[1] if len(result) == 2 else result[1:]
    K = r.cudaMemcpyKind
    def array(width, height):
        channels = done(r.cudaCreateChannelDesc(8, 0, 0, 0, r.cudaChannelFormatKind(1)))
        return done(r.cudaMallocArray(channels, width, height, 0))
    def bytes_at(size, values=()):
        return (ctypes.c_ubyte * size)(*values)
"""


def test_bytes_go_through_the_rows_of_an_array():
    program = """
    made = array(4, 3)
    given = bytes_at(12, range(1, 13))
    done(r.cudaMemcpyToArray(made, 0, 0, given, 12, K.cudaMemcpyHostToDevice))
    back = bytes_at(7)
    done(r.cudaMemcpyFromArray(back, made, 3, 0, 7, K.cudaMemcpyDeviceToHost))
    print(list(back))
    other = array(3, 4)
    done(r.cudaMemcpy2DToArray(other, 0, 0, bytes_at(12), 3, 3, 4, K.cudaMemcpyHostToDevice))
    done(r.cudaMemcpyArrayToArray(other, 1, 1, made, 2, 0, 8, K.cudaMemcpyDeviceToDevice))
    whole = bytes_at(12)
    done(r.cudaMemcpyFromArrayAsync(whole, other, 0, 0, 12, K.cudaMemcpyDeviceToHost, 0))
    done(r.cudaDeviceSynchronize())
    print(list(whole))
    print(r.cudaMemcpyToArray(made, 4, 0, given, 1, K.cudaMemcpyHostToDevice)[0].name)
    print(r.cudaMemcpyToArray(made, 0, 0, given, 13, K.cudaMemcpyHostToDevice)[0].name)
    """
    assert run_driver(IMPORT + program).splitlines() == [
        "[4, 5, 6, 7, 8, 9, 10]",
        "[0, 0, 0, 0, 3, 4, 5, 6, 7, 8, 9, 10]",
        "cudaErrorInvalidValue",
        "cudaErrorInvalidValue",
    ]


def test_a_box_is_copied_between_devices():
    program = """
    places = []
    for device in (0, 1):
        done(r.cudaSetDevice(device))
        places.append(done(r.cudaMalloc(12)))
    given, back = bytes_at(12, range(12)), bytes_at(12)
    done(r.cudaMemcpy(places[0], given, 12, K.cudaMemcpyHostToDevice))
    done(r.cudaMemcpy(places[1], back, 12, K.cudaMemcpyHostToDevice))
    box = r.cudaMemcpy3DPeerParms()
    box.srcDevice, box.dstDevice = 0, 1
    box.srcPtr = r.make_cudaPitchedPtr(places[0], 4, 4, 3)
    box.dstPtr = r.make_cudaPitchedPtr(places[1], 4, 4, 3)
    box.extent = r.make_cudaExtent(2, 3, 1)
    done(r.cudaMemcpy3DPeer(box))
    done(r.cudaMemcpy(back, places[1], 12, K.cudaMemcpyDeviceToHost))
    print(list(back))
    box.dstDevice = 5
    print(r.cudaMemcpy3DPeer(box)[0].name)
    """
    assert run_driver(IMPORT + program, devices=2).splitlines() == [
        "[0, 1, 0, 0, 4, 5, 0, 0, 8, 9, 0, 0]",
        "cudaErrorInvalidDevice",
    ]
