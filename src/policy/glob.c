/* Patterns of texts: see policy.h. */
#include "base/text.h"
#include "policy/policy.h"

/* On a mismatch only the last '*' takes one more character: at most pattern_len * len steps. */
bool cg_pol_glob(const char *pattern, size_t pattern_len, const char *text, size_t len)
{
        size_t p = 0, t = 0, star = SIZE_MAX, star_t = 0;

        while (t < len) {
                if (p < pattern_len && pattern[p] == '*') {
                        star = p++;
                        star_t = t;
                } else if (p < pattern_len && pattern[p] == '?') {
                        uint32_t cp;
                        size_t n = cg_utf8_next((const unsigned char *)text + t, len - t, &cp);

                        p++;
                        t += n ?: 1; /* a character, not a byte */
                } else if (p < pattern_len && pattern[p] == text[t]) {
                        p++;
                        t++;
                } else if (star != SIZE_MAX) {
                        p = star + 1;
                        t = ++star_t;
                } else {
                        return false;
                }
        }
        while (p < pattern_len && pattern[p] == '*')
                p++;
        return p == pattern_len;
}
