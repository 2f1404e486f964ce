/* The supervisors that this user's commands share. See supervisors.h. */
#include "cli/common/supervisors.h"

#include "base/fd.h"
#include "base/proc.h"

#define ANSWER_MS 3000

int cg_supervisors(int (*each)(const char *address, void *data), void *data, struct cg_err *err)
{
        static const char prefix[] = "shared-";
        char parent[128], path[400];
        struct dirent *e;
        struct stat st;
        int r = 0;
        DIR *d;

        if (cg_runtime_parent("cellgate", parent, sizeof(parent), err) < 0)
                return -1;
        d = opendir(parent);
        while (d && r == 0 && (e = readdir(d))) {
                if (strncmp(e->d_name, prefix, sizeof(prefix) - 1) != 0)
                        continue;
                snprintf(path, sizeof(path), "%s/%s", parent, e->d_name);
                if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid())
                        r = each(path, data);
        }
        if (d)
                closedir(d);
        return r;
}

int cg_supervisor_open(const char *address, struct cg_client **ret, struct cg_err *err)
{
        struct cg_client_options co = { .size = sizeof(co), .address = address, .timeout_ms = ANSWER_MS };

        return cg_client_open(&co, ret, err);
}

json_t *cg_reply_json(char *text)
{
        json_t *o = text ? json_loads(text, JSON_ALLOW_NUL, NULL) : NULL;

        cg_free(text);
        return o;
}

/* The command line is that of a private supervisor with a folder in @parent. */
static bool is_private(const char *words, size_t len, const char *parent)
{
        static const char name[] = "cellgate-supervisor";
        bool private = false, ours = false;

        if (strcmp(words, name) != 0)
                return false;
        for (const char *w = words; w < words + len; w += strlen(w) + 1) {
                private |= strcmp(w, "--private") == 0;
                ours |= strncmp(w, parent, strlen(parent)) == 0;
        }
        return private && ours;
}

size_t cg_private_supervisors(void)
{
        char parent[128], path[300], words[512];
        struct dirent *e;
        size_t n = 0;
        DIR *d;

        if (cg_runtime_parent("cellgate", parent, sizeof(parent), NULL) < 0)
                return 0;
        d = opendir("/proc");
        while (d && (e = readdir(d))) {
                if (strspn(e->d_name, "0123456789") != strlen(e->d_name))
                        continue;
                snprintf(path, sizeof(path), "/proc/%s/cmdline", e->d_name);
                memset(words, 0, sizeof(words));
                n += cg_proc_read_text(path, words, sizeof(words) - 1) &&
                     is_private(words, sizeof(words) - 1, parent);
        }
        if (d)
                closedir(d);
        return n;
}

void cg_add_duration(struct cg_buf *b, int64_t ms)
{
        int64_t s = ms / 1000;

        if (s < 120)
                cg_buf_addf(b, "%lld s", (long long)s);
        else if (s < 7200)
                cg_buf_addf(b, "%lld min", (long long)(s / 60));
        else
                cg_buf_addf(b, "%lld h", (long long)(s / 3600));
}
