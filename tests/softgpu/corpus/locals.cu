// Pointers to local variables, handed to functions that stay functions; locals_smNN.ptx are NVRTC's.
#define STAYS __device__ __noinline__

struct Pair {
    int first;
    double second;
    int *more;
};

STAYS void add_to(int *value, int amount) { *value += amount; }

STAYS int *element(int *array, int index) { return array + (index & 7); }

STAYS void fill(int *array, int count, int seed)
{
    int own[4] = {seed, seed + 1, seed + 2, seed + 3};
    for (int i = 0; i < count; i++) {
        array[i] = own[(i + seed) & 3] * 10 + i;
        add_to(&own[i & 3], 1);
    }
}

STAYS void change(Pair *pair)
{
    pair->first *= 3;
    pair->second += 0.5;
    add_to(pair->more, pair->first);
}

STAYS void outer(Pair *pair, int by)
{
    int own = by;
    Pair mine = {by, 1.0, &own};
    change(&mine);
    pair->first += mine.first + own;
    pair->second += mine.second;
    change(pair);
}

STAYS double grow(double x, int *sign)
{
    *sign = 1;
    if (x < -34.0) {
        double inner = grow(-x, sign);
        *sign = -*sign;
        return inner + 1;
    }
    return x * 2;
}

STAYS double with_sign(double x)
{
    int sign = 0;
    double y = grow(x, &sign);
    return y * sign;
}

STAYS int descend(int n, int *above)
{
    int own[3] = {n, 2 * n, 3 * n};
    if (n > 0) *above += descend(n - 1, &own[n % 3]);
    return own[0] + own[1] + own[2];
}

STAYS int by_value(Pair pair, int index)
{
    int *words = &pair.first;
    pair.first += 5;
    add_to(words, index);
    return pair.first + (int)pair.second;
}

STAYS void swap(int **a, int **b)
{
    int *kept = *a;
    *a = *b;
    *b = kept;
}

extern "C" __global__ void scalars(int *out)
{
    int value = threadIdx.x;
    add_to(&value, 100);
    out[threadIdx.x] = value;
}

extern "C" __global__ void arrays(int *out)
{
    int i = threadIdx.x, array[8];
    fill(array, 8, i);
    add_to(element(array, i), 1000);
    int sum = 0;
    for (int k = 0; k < 8; k++) sum += array[k] * (k + 1);
    out[i] = sum;
}

extern "C" __global__ void structs(int *out)
{
    int i = threadIdx.x, more = i;
    Pair pair = {i, 2.0, &more};
    outer(&pair, i + 1);
    out[i] = pair.first * 100 + (int)(pair.second * 2) + more * 10000;
}

extern "C" __global__ void recursive(double *out) { out[threadIdx.x] = with_sign(out[threadIdx.x]); }

extern "C" __global__ void deep(int *out)
{
    int top = 7;
    int sum = descend(threadIdx.x & 15, &top);
    out[threadIdx.x] = sum * 1000 + top;
}

extern "C" __global__ void alone(int *out)
{
    int i = threadIdx.x, mine = 1, other = 2;
    if (i % 3 == 0) add_to(&mine, i);
    else if (i % 3 == 1) add_to(i & 1 ? &mine : &other, 10 * i);
    out[i] = mine * 10000 + other;
}

extern "C" __global__ void values(int *out)
{
    int i = threadIdx.x;
    Pair pair = {i, 4.0, 0};
    int found = by_value(pair, 10 * i);
    out[i] = found * 1000 + pair.first;
}

extern "C" __global__ void kept(int *out)
{
    int i = threadIdx.x, one = i, two = 1000 + i;
    int *a = &one, *b = &two;
    if (i & 1) swap(&a, &b);
    add_to(a, 5);
    out[i] = *a * 10000 + *b;
}

// A barrier in it: this one is written out in the kernel.
STAYS void at_barrier(int *value, int *shared)
{
    shared[threadIdx.x] = *value;
    __syncthreads();
    add_to(value, shared[(threadIdx.x + 1) % blockDim.x]);
}

extern "C" __global__ void barriers(int *out)
{
    __shared__ int shared[64];
    int value = threadIdx.x * 3;
    at_barrier(&value, shared);
    out[threadIdx.x] = value;
}
