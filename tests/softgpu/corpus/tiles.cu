// Tiles of several warps, which cooperative groups keep in reserved shared memory from sm_80 on;
// tiles_smNN.ptx are nvcc's: nvcc -ptx -arch=compute_NN tiles.cu
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

extern __shared__ int added[];

template <int SIZE> __device__ void tiles(const int *in, int *sums, int *scans, int *votes, int *echo)
{
    __shared__ int declared[256];
    __shared__ cg::block_tile_memory<256> scratch;
    auto block = cg::this_thread_block(scratch);
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    declared[threadIdx.x] = in[i];
    added[threadIdx.x] = ~in[i];
    block.sync();
    auto tile = cg::tiled_partition<SIZE>(block);
    for (int round = 0; round < 3; round++) {
        sums[i] = cg::reduce(tile, in[i] + round, cg::plus<int>());
        tile.sync();
    }
    scans[i] = cg::inclusive_scan(tile, in[i]);
    votes[i] = tile.any(in[i] % 100 == 0) + 2 * tile.all(in[i] > 64);
    block.sync();
    echo[i] = declared[threadIdx.x] - added[threadIdx.x];
}

extern "C" __global__ void tiles64(const int *in, int *sums, int *scans, int *votes, int *echo)
{
    tiles<64>(in, sums, scans, votes, echo);
}

extern "C" __global__ void tiles128(const int *in, int *sums, int *scans, int *votes, int *echo)
{
    tiles<128>(in, sums, scans, votes, echo);
}
