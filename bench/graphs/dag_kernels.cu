// The kernels of bench_dags: each thread does one element, a reduction is one block of 128.

#define HERE int(blockIdx.x * blockDim.x + threadIdx.x)

struct Sum {
    static __device__ float of(float a, float b) { return a + b; }
};
struct Largest {
    static __device__ float of(float a, float b) { return fmaxf(a, b); }
};
struct Smallest {
    static __device__ float of(float a, float b) { return fminf(a, b); }
};

// In an order that depends on nothing, so the bits are the same each time.
template <typename How>
static __device__ float reduced(float mine) {
    __shared__ float parts[128];
    int at = threadIdx.x;
    parts[at] = mine;
    __syncthreads();
    for (int half = 64; half; half /= 2) {
        if (at < half) parts[at] = How::of(parts[at], parts[at + half]);
        __syncthreads();
    }
    return parts[0];
}

extern "C" {

__global__ void square(const float *x, float *out, int n) {
    int i = HERE;
    if (i < n) out[i] = x[i] * x[i];
}

__global__ void difference(const float *x, const float *y, float *out, int n) {
    float mine = 0;
    for (int i = threadIdx.x; i < n; i += 128) mine += x[i] - y[i];
    float all = reduced<Sum>(mine);
    if (!threadIdx.x) *out = all;
}

__global__ void total(const float *x, float *out, int n) {
    float mine = 0;
    for (int i = threadIdx.x; i < n; i += 128) mine += x[i];
    float all = reduced<Sum>(mine);
    if (!threadIdx.x) *out = all;
}

__global__ void largest(const float *x, float *out, int n) {
    float mine = x[0];
    for (int i = threadIdx.x; i < n; i += 128) mine = fmaxf(mine, x[i]);
    float all = reduced<Largest>(mine);
    if (!threadIdx.x) *out = all;
}

__global__ void smallest(const float *x, float *out, int n) {
    float mine = x[0];
    for (int i = threadIdx.x; i < n; i += 128) mine = fminf(mine, x[i]);
    float all = reduced<Smallest>(mine);
    if (!threadIdx.x) *out = all;
}

__global__ void call_price(const double *spot, double *out, double strike, double rate,
                           double volatility, double years, int n) {
    int i = HERE;
    if (i >= n) return;
    double spread = volatility * sqrt(years);
    double high = (log(spot[i] / strike) + rate * years) / spread + spread / 2;
    double low = high - spread;
    double half_root = 0.70710678118654752440;
    out[i] = spot[i] * erfc(-high * half_root) / 2 -
             strike * exp(-rate * years) * erfc(-low * half_root) / 2;
}

__global__ void blur(const float *image, const float *weights, float *out, int side, int radius) {
    int i = HERE;
    if (i >= side * side) return;
    int width = 2 * radius + 1;
    float sum = 0;
    for (int dy = -radius; dy <= radius; dy++)
        for (int dx = -radius; dx <= radius; dx++) {
            int y = i / side + dy, x = i % side + dx;
            if (y >= 0 && x >= 0 && y < side && x < side)
                sum += weights[(dy + radius) * width + dx + radius] * image[y * side + x];
        }
    out[i] = sum;
}

__global__ void edges(const float *image, float *out, int side) {
    int i = HERE;
    if (i >= side * side) return;
    float down = 0, right = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++) {
            int y = i / side + dy, x = i % side + dx;
            if (y < 0 || x < 0 || y >= side || x >= side) continue;
            float here = image[y * side + x];
            down += dy * (2 - abs(dx)) * here;
            right += dx * (2 - abs(dy)) * here;
        }
    out[i] = sqrtf(down * down + right * right);
}

__global__ void stretch(float *mask, const float *low, const float *high, int n) {
    int i = HERE;
    if (i < n) mask[i] = fminf(1, 5 * (mask[i] - *low) / (*high - *low));
}

__global__ void unsharpen(const float *image, const float *soft, float *out, float amount, int n) {
    int i = HERE;
    if (i < n) out[i] = fmaxf(0, fminf(1, image[i] * (1 + amount) - soft[i] * amount));
}

__global__ void combine(const float *x, const float *y, const float *mask, float *out, int n) {
    int i = HERE;
    if (i < n) out[i] = x[i] * mask[i] + y[i] * (1 - mask[i]);
}

// Rows of `columns`: a thread has a row, or in `normalise` a column.

__global__ void scores(const float *x, const float *weights, const float *first, float *out,
                       int rows, int columns, int classes) {
    int i = HERE;
    if (i >= rows) return;
    for (int c = 0; c < classes; c++) {
        float sum = first[c];
        for (int j = 0; j < columns; j++) sum += x[i * columns + j] * weights[c * columns + j];
        out[i * classes + c] = sum;
    }
}

__global__ void normalise(const float *x, float *out, int rows, int columns) {
    int j = HERE;
    if (j >= columns) return;
    float sum = 0, squares = 0;
    for (int i = 0; i < rows; i++) sum += x[i * columns + j];
    float mean = sum / rows;
    for (int i = 0; i < rows; i++) {
        float off = x[i * columns + j] - mean;
        squares += off * off;
    }
    float deviation = sqrtf(squares / rows);
    for (int i = 0; i < rows; i++) out[i * columns + j] = (x[i * columns + j] - mean) / deviation;
}

__global__ void row_largest(const float *x, float *out, int rows, int classes) {
    int i = HERE;
    if (i >= rows) return;
    float found = x[i * classes];
    for (int c = 1; c < classes; c++) found = fmaxf(found, x[i * classes + c]);
    out[i] = found;
}

__global__ void row_log_sum(const float *x, const float *most, float *out, int rows, int classes) {
    int i = HERE;
    if (i >= rows) return;
    float sum = 0;
    for (int c = 0; c < classes; c++) sum += expf(x[i * classes + c] - most[i]);
    out[i] = logf(sum) + most[i];
}

__global__ void row_exponential(float *x, const float *less, int rows, int classes) {
    int i = HERE;
    if (i < rows)
        for (int c = 0; c < classes; c++) x[i * classes + c] = expf(x[i * classes + c] - less[i]);
}

__global__ void softmax(float *x, int rows, int classes) {
    int i = HERE;
    if (i >= rows) return;
    float sum = 0, most = x[i * classes];
    for (int c = 1; c < classes; c++) most = fmaxf(most, x[i * classes + c]);
    for (int c = 0; c < classes; c++) sum += expf(x[i * classes + c] - most);
    for (int c = 0; c < classes; c++) x[i * classes + c] = expf(x[i * classes + c] - most) / sum;
}

__global__ void best(const float *x, const float *y, int *out, int rows, int classes) {
    int i = HERE;
    if (i >= rows) return;
    int found = 0;
    for (int c = 1; c < classes; c++)
        if (x[i * classes + c] + y[i * classes + c] > x[i * classes + found] + y[i * classes + found])
            found = c;
    out[i] = found;
}

__global__ void gather(const int *begin, const int *from, const float *x, float *out, int n) {
    int i = HERE;
    if (i >= n) return;
    float sum = 0;
    for (int at = begin[i]; at < begin[i + 1]; at++) sum += x[from[at]];
    out[i] = sum;
}

__global__ void divide(const float *x, const float *by, float *out, int n) {
    int i = HERE;
    if (i < n) out[i] = x[i] / *by;
}

// Images lie one behind the other; what is outside is 0.

__global__ void convolve(const float *x, const float *weights, float *out, int side, int inputs,
                         int outputs) {
    int i = HERE;
    if (i >= outputs * side * side) return;
    int to = i / (side * side), row = i / side % side, column = i % side;
    float sum = 0;
    for (int from = 0; from < inputs; from++)
        for (int k = 0; k < 9; k++) {
            int y = row + k / 3 - 1, z = column + k % 3 - 1;
            if (y >= 0 && z >= 0 && y < side && z < side)
                sum += weights[(to * inputs + from) * 9 + k] * x[(from * side + y) * side + z];
        }
    out[i] = fmaxf(sum, 0);
}

__global__ void pool(const float *x, float *out, int half, int images) {
    int i = HERE;
    if (i >= images * half * half) return;
    int image = i / (half * half), row = i / half % half, column = i % half;
    const float *corner = x + (image * 2 * half + 2 * row) * 2 * half + 2 * column;
    out[i] = fmaxf(fmaxf(corner[0], corner[1]), fmaxf(corner[2 * half], corner[2 * half + 1]));
}

__global__ void join(const float *x, const float *y, float *out, int n) {
    int i = HERE;
    if (i < 2 * n) out[i] = i < n ? x[i] : y[i - n];
}

__global__ void dense(const float *x, const float *weights, float *out, int n) {
    float mine = 0;
    for (int i = threadIdx.x; i < n; i += 128) mine += x[i] * weights[i];
    float all = reduced<Sum>(mine);
    if (!threadIdx.x) *out = all;
}
}
