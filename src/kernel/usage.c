/* Processor and memory use of the kernel. Kernel process, I/O thread. See usage.h. */
#include "kernel/usage.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/json.h"
#include "base/util.h"
#include "kernel/procs.h"

/* The number after "NAME:" at the start of a line, in bytes. False when there is none. */
static bool kilobytes(const char *text, const char *name, uint64_t *ret)
{
        size_t len = strlen(name);

        for (const char *line = text; line; line = strchr(line, '\n')) {
                line += *line == '\n';
                if (strncmp(line, name, len) == 0 && line[len] == ':') {
                        *ret = strtoull(line + len + 1, NULL, 10) * 1024;
                        return true;
                }
        }
        return false;
}

/* ------------------------------------------------------------------ processes */

static int add_processes(struct cg_usage *last, struct cg_buf *b, int64_t now_ms, struct cg_err *err)
{
        cg_auto_free struct cg_process *list = calloc(CG_MAX_PROCESSES, sizeof(*list));
        uint64_t memory = 0, ticks = 0;
        double seconds = (double)(now_ms - last->at_ms) / 1000, cpu = 0;
        size_t n;

        if (!list)
                return cg_fail(err, CG_E_NOMEM, "list of processes");
        n = cg_procs_read(list, CG_MAX_PROCESSES);
        for (size_t i = 0; i < n; i++) {
                char path[64], text[4096];
                uint64_t bytes = 0;

                if (!list[i].ours)
                        continue;
                ticks += list[i].stat.ticks;
                /* Proportional set size, so that memory shared by several processes counts once. */
                snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)list[i].stat.pid);
                if (cg_proc_read_text(path, text, sizeof(text)))
                        kilobytes(text, "Pss", &bytes);
                memory += bytes;
        }
        if (seconds > 0 && ticks >= last->own_ticks)
                cpu = (double)(ticks - last->own_ticks) / (double)sysconf(_SC_CLK_TCK) / seconds * 100;
        last->own_ticks = ticks;
        return cg_buf_try_addf(b, err, ",\"kernel_cpu\":%.1f,\"kernel_memory\":%" PRIu64, cpu, memory);
}

/* ------------------------------------------------------------------ the machine */

static int add_host_cpu(struct cg_usage *last, struct cg_buf *b, struct cg_err *err)
{
        uint64_t v[8] = { 0 }, all = 0, idle;
        uint64_t busy, d_busy, d_all;
        char text[1024];

        if (!cg_proc_read_text("/proc/stat", text, sizeof(text)) ||
            sscanf(text,
                   "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
                   " %" SCNu64,
                   &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]) < 4)
                return 0;
        for (size_t i = 0; i < CG_ARRAY_LEN(v); i++)
                all += v[i];
        idle = v[3] + v[4];
        busy = all - idle;
        d_busy = busy - last->host_busy;
        d_all = all - last->host_all;
        last->host_busy = busy;
        last->host_all = all;
        if (!d_all || d_busy > d_all)
                return 0;
        return cg_buf_try_addf(b, err, ",\"host_cpu_percent\":%.1f", (double)d_busy * 100 / (double)d_all);
}

static int add_host_memory(struct cg_buf *b, struct cg_err *err)
{
        static const struct {
                const char *in, *out;
        } rows[] = { { "MemFree", "free" },    { "Active", "active" }, { "Inactive", "inactive" },
                     { "Buffers", "buffers" }, { "Cached", "cached" }, { "Shmem", "shared" },
                     { "Slab", "slab" } };
        uint64_t total = 0, available = 0, v;
        char text[8192];
        int r;

        if (!cg_proc_read_text("/proc/meminfo", text, sizeof(text)) || !kilobytes(text, "MemTotal", &total) ||
            !total || !kilobytes(text, "MemAvailable", &available))
                return 0;
        r = cg_buf_try_addf(
                b, err,
                ",\"host_virtual_memory\":{\"total\":%" PRIu64 ",\"available\":%" PRIu64 ",\"percent\":%.1f,"
                "\"used\":%" PRIu64,
                total, available, (double)(total - available) * 100 / (double)total, total - available);
        for (size_t i = 0; r == 0 && i < CG_ARRAY_LEN(rows); i++)
                if (kilobytes(text, rows[i].in, &v))
                        r = cg_buf_try_addf(b, err, ",\"%s\":%" PRIu64, rows[i].out, v);
        return r == 0 ? cg_buf_try_adds(b, "}", err) : r;
}

int cg_usage_json(struct cg_usage *last, struct cg_buf *b, struct cg_err *err)
{
        char host[HOST_NAME_MAX + 1] = "";
        int64_t now_ms = cg_now_ms();
        int r;

        gethostname(host, sizeof(host) - 1);
        r = cg_buf_try_adds(b, "{\"status\":\"ok\",\"hostname\":", err);
        if (r == 0)
                r = cg_json_try_quote(b, host, strlen(host), err);
        if (r == 0)
                r = cg_buf_try_addf(b, err, ",\"pid\":%d,\"cpu_count\":%ld", (int)getpid(),
                                    sysconf(_SC_NPROCESSORS_ONLN));
        if (r == 0)
                r = add_processes(last, b, now_ms, err);
        if (r == 0)
                r = add_host_cpu(last, b, err);
        if (r == 0)
                r = add_host_memory(b, err);
        last->at_ms = now_ms;
        return r == 0 ? cg_buf_try_adds(b, "}", err) : r;
}
