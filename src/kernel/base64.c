/*
 * Base64 text; runs in the kernel process. A picture of 3 MB takes less than a millisecond, several
 * in the standard library.
 */
#include "kernel/base64.h"

#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t cg_base64_size(size_t len)
{
        size_t groups = len / 3 + (len % 3 != 0);

        return groups > SIZE_MAX / 4 ? 0 : groups * 4;
}

#if defined(__x86_64__)
/* 12 bytes become 16 characters; 16 bytes are read at @in. */
__attribute__((target("ssse3"))) static __m128i encode_16(const unsigned char *in)
{
        /*
         * Each group of three bytes a, b, c as the two words (b, a) and (c, b), so that no field
         * lies across words.
         */
        const __m128i spread = _mm_setr_epi8(1, 0, 2, 1, 4, 3, 5, 4, 7, 6, 8, 7, 10, 9, 11, 10);
        /*
         * What to add to a value, by its range: 0..25 'A', 26..51 'a' - 26, 52..61 '0' - 52, 62
         * '+', 63 '/'.
         */
        const __m128i offsets = _mm_setr_epi8('a' - 26, '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52,
                                              '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52, '+' - 62,
                                              '/' - 63, 'A', 0, 0);
        __m128i words = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)in), spread);
        /*
         * The first and third value move down by 10 and 6 bits, the second and fourth up by 4 and
         * 8.
         */
        __m128i odd = _mm_mulhi_epu16(_mm_and_si128(words, _mm_set1_epi32(0x0fc0fc00)),
                                      _mm_set1_epi32(0x04000040));
        __m128i even = _mm_mullo_epi16(_mm_and_si128(words, _mm_set1_epi32(0x003f03f0)),
                                       _mm_set1_epi32(0x01000010));
        __m128i values = _mm_or_si128(odd, even);
        /* 0 for both ranges of letters, else 1..12; then 13 for the capitals. */
        __m128i range = _mm_subs_epu8(values, _mm_set1_epi8(51));
        __m128i capital = _mm_cmpgt_epi8(_mm_set1_epi8(26), values);

        range = _mm_or_si128(range, _mm_and_si128(capital, _mm_set1_epi8(13)));
        return _mm_add_epi8(values, _mm_shuffle_epi8(offsets, range));
}

__attribute__((target("ssse3"))) static size_t encode_fast(char *out, const unsigned char *in, size_t len)
{
        size_t done = 0;

        for (; len - done >= 16; done += 12, out += 16)
                _mm_storeu_si128((__m128i *)(void *)out, encode_16(in + done));
        return done;
}

/* Returns how many bytes it took, a multiple of three. */
static size_t encode_most(char *out, const unsigned char *in, size_t len)
{
        return __builtin_cpu_supports("ssse3") ? encode_fast(out, in, len) : 0;
}
#else
static size_t encode_most(char *out, const unsigned char *in, size_t len)
{
        return 0;
}
#endif

static void put_group(char *out, uint32_t bits)
{
        for (int i = 0; i < 4; i++)
                out[i] = alphabet[bits >> (18 - 6 * i) & 63];
}

void cg_base64(char *out, const void *data, size_t len)
{
        const unsigned char *in = data;
        size_t i = encode_most(out, in, len), left;

        for (out += i / 3 * 4; len - i >= 3; i += 3, out += 4)
                put_group(out, (uint32_t)in[i] << 16 | (uint32_t)in[i + 1] << 8 | in[i + 2]);
        left = len - i;
        if (!left)
                return;
        put_group(out, (uint32_t)in[i] << 16 | (left == 2 ? (uint32_t)in[i + 1] << 8 : 0));
        memset(out + left + 1, '=', 3 - left);
}
