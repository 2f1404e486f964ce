/*
 * --sync: a process of the Python package copies the folder and brings it back. It is told of the
 * end of the run by the end of its input, so also when this process is killed.
 */
#include "cli/run/run.h"

#include "base/fd.h"
#include "base/installed.h"
#include "cli/common/package.h"
#include "cli/common/pip.h"
#include "config.h"

/* The path of the copy, a line. It is the other machine's word, and a name there only. */
static int read_path(int fd, char path[PATH_MAX], struct cg_err *err)
{
        size_t len = 0;
        ssize_t n;

        do {
                n = read(fd, path + len, PATH_MAX - len);
                len += n > 0 ? (size_t)n : 0;
        } while (n > 0 && len < PATH_MAX && path[len - 1] != '\n');
        if (!len || path[len - 1] != '\n')
                return cg_fail(err, CG_E_SYS, "--sync: the folder was not copied");
        path[len - 1] = '\0';
        return 0;
}

/* Words of the process: see main() in python/cellgate/_sync.py. */
static int spawn(const char **words, int in, int out, struct cg_run_sync *s, struct cg_err *err)
{
        const struct cg_proc_fd fds[] = { { in, 0 }, { out, 1 }, { 2, 2 } };
        cg_auto_free char **env = cg_pip_environment(); /* without Python's variables */
        struct cg_proc_spec spec = { .path = words[0],
                                     .argv = (char *const *)(uintptr_t)words,
                                     .envp = env,
                                     .fds = fds,
                                     .n_fds = CG_ARRAY_LEN(fds),
                                     .new_session = true }; /* ^C ends the run, and then this */

        if (!env)
                return cg_fail(err, CG_E_NOMEM, "--sync");
        return cg_proc_spawn(&spec, &s->proc, err);
}

int cg_run_sync_start(struct cg_run_options *o, struct cg_run_sync *s, struct cg_err *err)
{
        const struct cg_kernel_options *k = &o->kernel;
        const char *const own[] = { k->mcp, k->sandbox, k->config };
        cg_auto_free const char **words = calloc(CG_PACKAGE_WORDS + 16 + k->n.policies, sizeof(*words));
        cg_auto_fd int in = -1, to = -1, from = -1, out = -1;
        size_t n = CG_PACKAGE_WORDS, n_connect = 0;
        char count[24];
        int r, p[2];

        if (!words)
                return cg_fail(err, CG_E_NOMEM, "--sync");
        r = cg_package_words(CG_PACKAGE_PLACE, "cellgate._sync", "run --sync", words, err);
        if (r < 0)
                return r;
        while (k->connect.words[n_connect])
                n_connect++;
        snprintf(count, sizeof(count), "%zu", n_connect);
        words[n++] = o->sync;
        words[n++] = k->workspace ?: "";
        words[n++] = k->tier ?: "";
        words[n++] = count;
        for (size_t i = 0; i < n_connect; i++)
                words[n++] = k->connect.words[i];
        for (size_t i = 0; i < CG_ARRAY_LEN(own); i++)
                if (own[i])
                        words[n++] = own[i];
        for (size_t i = 0; i < k->n.policies; i++)
                words[n++] = k->policies[i];
        if (pipe2(p, O_CLOEXEC) < 0)
                return cg_fail_errno(err, "pipe");
        in = p[0];
        to = p[1];
        if (pipe2(p, O_CLOEXEC) < 0)
                return cg_fail_errno(err, "pipe");
        from = p[0];
        out = p[1];
        r = spawn(words, in, out, s, err);
        if (r < 0)
                return r;
        s->fd = cg_steal_fd(&to);
        close(cg_steal_fd(&out));
        r = read_path(from, s->path, err);
        close(cg_steal_fd(&from)); /* a longer path, which it would write for ever, ends it */
        if (r < 0)
                cg_run_sync_end(s, NULL);
        o->kernel.workspace = s->path;
        return r;
}

int cg_run_sync_end(struct cg_run_sync *s, struct cg_err *err)
{
        int status = 0, r;

        if (s->fd < 0)
                return 0;
        close(cg_steal_fd(&s->fd));
        r = cg_proc_wait(&s->proc, -1, &status, err);
        if (r >= 0 && status)
                return cg_fail(err, CG_E_SYS, "--sync: the folder was not brought back, or not all of it");
        return r;
}
