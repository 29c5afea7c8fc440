// IEEE half precision by integer arithmetic, as the conversions of a GPU do it.
#pragma once

namespace emulation {

inline float as_float(unsigned int bits) {
    float x;
    __builtin_memcpy(&x, &bits, 4);
    return x;
}

inline unsigned int as_bits(float x) {
    unsigned int bits;
    __builtin_memcpy(&bits, &x, 4);
    return bits;
}

// Exact. A NaN stays one, and becomes quiet.
inline float half_to_float(unsigned short half) {
    unsigned int sign = (half & 0x8000u) << 16, exponent = (half >> 10) & 31, fraction = half & 0x3ffu;
    if (exponent == 31) return as_float(sign | 0x7f800000u | (fraction << 13) | (fraction ? 0x400000u : 0));
    if (exponent == 0) {
        float tiny = static_cast<float>(fraction) * 0x1p-24f;
        return sign ? -tiny : tiny;
    }
    return as_float(sign | ((exponent + 112) << 23) | (fraction << 13));
}

// Rounds to the nearest, ties to even. Every NaN becomes 0x7fff, as on a GPU.
inline unsigned short float_to_half(float x) {
    unsigned int bits = as_bits(x), sign = (bits >> 16) & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return 0x7fff;
    if (size >= 0x477ff000u) return static_cast<unsigned short>(sign | 0x7c00u); // 65520 and more: infinite
    if (size >= 0x38800000u) { // normal
        unsigned int odd = (size >> 13) & 1;
        return static_cast<unsigned short>(sign | ((size - 0x38000000u + 0xfffu + odd) >> 13));
    }
    // Adding 0.5, whose last place is worth 2^-24, rounds to a multiple of the smallest subnormal.
    unsigned int steps = as_bits(as_float(size) + 0.5f) - as_bits(0.5f);
    return static_cast<unsigned short>(sign | steps);
}

} // namespace emulation
