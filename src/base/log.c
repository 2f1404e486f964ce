/* Logging for mains. Linked into every process. */
#include "base/log.h"

#include <stdarg.h>
#include <time.h>
#include "base/buf.h"
#include "base/text.h"

#define RECORD_MAX 4096

static const char *const level_names[] = { "error", "warn", "info", "debug" };

/*
 * Records contain text of MCP servers and kernels, and the log may be a terminal: the text is
 * rendered as one line without control characters.
 */
static size_t put_escaped(char *out, size_t room, const char *text)
{
        cg_auto_buf struct cg_buf b = { .max = (size_t)RECORD_MAX * 12 };
        size_t n;

        if (cg_text_try_render_as(&b, text, strlen(text), 0, CG_TEXT_LINE, NULL) < 0)
                return 0;
        n = b.len < room ? b.len : room - 1;
        while (n && n < b.len && ((unsigned char)b.data[n] & 0xc0) == 0x80)
                n--; /* do not cut a character */
        memcpy(out, b.data ?: "", n);
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
