/* Logging for mains. Linked into every process. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/text.h"

#define RECORD_MAX 4096

static const char *const level_names[] = { "error", "warn", "info", "debug" };

/* What comes from MCP servers and kernels stands in it, and the log may be a terminal: one line, and nothing that acts or deceives. */
static size_t put_escaped(char *out, size_t room, const char *text)
{
        size_t n = 0, len = strlen(text);

        for (size_t i = 0; i < len && n + 12 < room;) {
                cg_auto_buf struct cg_buf b = { .max = 64 };
                uint32_t c = 0;
                size_t k = cg_utf8_next((const unsigned char *)text + i, len - i, &c);

                if (c >= 0x20 && c < 0x7f) {
                        out[n++] = text[i];
                } else if (c == '\n' || c == '\t') {
                        n += (size_t)snprintf(out + n, room - n, "\\x%02x", (unsigned)c);
                } else if (cg_text_render(&b, text + i, k ? k : 1, 0, NULL) == 0) {
                        memcpy(out + n, b.data, b.len);
                        n += b.len;
                }
                i += k ? k : 1;
        }
        return n;
}

void cg_log(const struct cg_log *log, enum cg_log_level level, const char *fmt, ...)
{
        char text[RECORD_MAX], line[RECORD_MAX + 128];
        struct timespec now;
        struct tm tm;
        va_list ap;
        size_t n;
        int len;

        if (!log || log->fd < 0 || (int)level > log->level)
                return;
        clock_gettime(CLOCK_REALTIME, &now);
        gmtime_r(&now.tv_sec, &tm);
        n = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &tm);
        n += (size_t)snprintf(line + n, sizeof(line) - n, ".%03dZ %s %s: ", (int)(now.tv_nsec / 1000000),
                              level_names[level], log->who);
        va_start(ap, fmt);
        len = vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        n += put_escaped(line + n, sizeof(line) - n - 16, text);
        if (len >= (int)sizeof(text))
                n += (size_t)snprintf(line + n, sizeof(line) - n, " [cut]");
        line[n++] = '\n';
        if (write(log->fd, line, n) < 0)
                return;
}
