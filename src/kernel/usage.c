/* Processor and memory use of the kernel. Kernel process, I/O thread. See usage.h. */
#include "kernel/usage.h"

#include "base/json.h"
#include "base/slice.h"
#include "kernel/procs.h"

/* ------------------------------------------------------------------ processes */

static void add_processes(struct cg_usage *last, struct cg_buf *b, int64_t now_ms)
{
        cg_auto_free struct cg_process *list = calloc(CG_MAX_PROCESSES, sizeof(*list));
        uint64_t memory = 0, ticks = 0;
        double seconds = (double)(now_ms - last->at_ms) / 1000, cpu = 0;
        size_t n;

        if (!list) {
                cg_buf_fail(b, CG_E_NOMEM);
                return;
        }
        n = cg_procs_read(list, CG_MAX_PROCESSES);
        for (size_t i = 0; i < n; i++) {
                char path[64], text[4096];
                int64_t kib = 0;

                if (!list[i].ours)
                        continue;
                ticks += list[i].stat.ticks;
                /* Proportional set size, so that memory shared by several processes counts once. */
                snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)list[i].stat.pid);
                if (cg_proc_read_text(path, text, sizeof(text)))
                        kib = cg_number_after(text, "Pss:");
                memory += kib > 0 ? (uint64_t)kib * 1024 : 0;
        }
        if (seconds > 0 && ticks >= last->own_ticks)
                cpu = (double)(ticks - last->own_ticks) / (double)sysconf(_SC_CLK_TCK) / seconds * 100;
        last->own_ticks = ticks;
        cg_buf_addf(b, ",\"kernel_cpu\":%.1f,\"kernel_memory\":%" PRIu64, cpu, memory);
}

/* ------------------------------------------------------------------ the machine */

static void add_host_cpu(struct cg_usage *last, struct cg_buf *b)
{
        uint64_t v[8] = { 0 }, all = 0, idle;
        uint64_t busy, d_busy, d_all;
        char text[1024];

        if (!cg_proc_read_text("/proc/stat", text, sizeof(text)) ||
            sscanf(text,
                   "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
                   " %" SCNu64,
                   &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]) < 4)
                return;
        for (size_t i = 0; i < CG_ARRAY_LEN(v); i++)
                all += v[i];
        idle = v[3] + v[4];
        busy = all - idle;
        d_busy = busy - last->host_busy;
        d_all = all - last->host_all;
        last->host_busy = busy;
        last->host_all = all;
        if (d_all && d_busy <= d_all)
                cg_buf_addf(b, ",\"host_cpu_percent\":%.1f", (double)d_busy * 100 / (double)d_all);
}

static void add_host_memory(struct cg_buf *b)
{
        static const struct {
                const char *in, *out;
        } rows[] = { { "MemFree:", "free" },    { "Active:", "active" }, { "Inactive:", "inactive" },
                     { "Buffers:", "buffers" }, { "Cached:", "cached" }, { "Shmem:", "shared" },
                     { "Slab:", "slab" } };
        int64_t total, available, kib;
        char text[8192];

        if (!cg_proc_read_text("/proc/meminfo", text, sizeof(text)))
                return;
        total = cg_number_after(text, "MemTotal:") * 1024;
        available = cg_number_after(text, "MemAvailable:") * 1024;
        if (total <= 0 || available < 0)
                return;
        cg_buf_addf(b,
                    ",\"host_virtual_memory\":{\"total\":%" PRId64 ",\"available\":%" PRId64
                    ",\"percent\":%.1f,"
                    "\"used\":%" PRId64,
                    total, available, (double)(total - available) * 100 / (double)total, total - available);
        for (size_t i = 0; i < CG_ARRAY_LEN(rows); i++)
                if ((kib = cg_number_after(text, rows[i].in)) >= 0)
                        cg_buf_addf(b, ",\"%s\":%" PRId64, rows[i].out, kib * 1024);
        cg_buf_adds(b, "}");
}

int cg_usage_json(struct cg_usage *last, struct cg_buf *b, struct cg_err *err)
{
        char host[HOST_NAME_MAX + 1] = "";
        int64_t now_ms = cg_now_ms();

        gethostname(host, sizeof(host) - 1);
        cg_buf_adds(b, "{\"status\":\"ok\",\"hostname\":");
        cg_json_quote(b, host, strlen(host));
        cg_buf_addf(b, ",\"pid\":%d,\"cpu_count\":%ld", (int)getpid(), sysconf(_SC_NPROCESSORS_ONLN));
        add_processes(last, b, now_ms);
        add_host_cpu(last, b);
        add_host_memory(b);
        cg_buf_adds(b, "}");
        last->at_ms = now_ms;
        return cg_buf_end(b, err);
}
