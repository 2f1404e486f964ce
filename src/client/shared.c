/*
 * libcellgate: the supervisor that the programs of one user share: its address, and the environment
 * that it is started with.
 *
 * All that a supervisor takes from the process that starts it, and that no session brings along, is
 * a part of the address: clients that differ in it have different supervisors. docs/architecture.md
 * has the list.
 */
#include "client/internal.h"

#include <nettle/sha2.h>
#include "base/batch_job.h"
#include "base/confinement.h"
#include "base/installed.h"
#include "base/kernel_env.h"
#include "base/text.h"
#include "config.h"

#define KEY_MAX ((size_t)4 << 20)

/*
 * The variables that supervisor, tool server and egress proxy, or the libraries in them, read; "*" at
 * the end: all that begin so. MCP servers and kernels get those of their own client.
 */
static const char *const passed[] = {
        "HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME",
        /* proxies and certificates */
        "http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY",
        "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE", "OPENSSL_*", "GNUTLS_*",
        /* names of hosts */
        "LOCALDOMAIN", "RES_OPTIONS", "HOSTALIASES",
        /* the limits of its queue */
        "CELLGATE_JOBS_*",
        /* the dynamic linker, the memory allocator, sanitizers */
        "LD_*", "GLIBC_TUNABLES", "MALLOC_*", "*SAN_OPTIONS", "SLURM_MEM_PER_NODE"
};

static bool matches(const char *pattern, const char *name, size_t len)
{
        size_t n = strlen(pattern);

        if (pattern[0] == '*')
                return len >= n - 1 && memcmp(name + len - (n - 1), pattern + 1, n - 1) == 0;
        if (pattern[n - 1] == '*')
                return len >= n - 1 && memcmp(name, pattern, n - 1) == 0;
        return len == n && memcmp(name, pattern, n) == 0;
}

static bool is_passed(const char *name, size_t len)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(passed); i++)
                if (matches(passed[i], name, len))
                        return true;
        /* Likewise the job. */
        for (size_t i = 0; i < CG_ARRAY_LEN(cg_batch_jobs); i++)
                if (matches(cg_batch_jobs[i], name, len))
                        return true;
        return false;
}

static int compare(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

char **cg_shared_environ(void)
{
        size_t n = 0, kept = 0;
        char **list;

        while (environ && environ[n])
                n++;
        list = calloc(n + 1, sizeof(*list));
        for (size_t i = 0; list && i < n; i++) {
                size_t len = strcspn(environ[i], "=");

                if (environ[i][len] && is_passed(environ[i], len))
                        list[kept++] = environ[i];
        }
        if (list) /* two shells may have set them in different orders */
                qsort(list, kept, sizeof(*list), compare);
        return list;
}

/* Texts of the key end with a NUL each, so that no two lists of texts are one. */
static void add(struct cg_buf *key, const char *text)
{
        cg_buf_add(key, text, strlen(text) + 1);
}

/* A file or folder that was replaced or changed makes another key; its path does not. */
static void add_file(struct cg_buf *key, const char *path)
{
        struct stat st;

        if (stat(path, &st) < 0)
                add(key, "none");
        else
                cg_buf_addf(key, "%llu %llu %lld.%09ld,", (unsigned long long)st.st_dev,
                            (unsigned long long)st.st_ino, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
}

/*
 * An environment of kernels. Its zygote has imported the packages that there were when it started:
 * the folder of packages changes with each that is installed or removed.
 */
static void add_environment(struct cg_buf *key, const char *dir)
{
        char path[PATH_MAX + sizeof(CG_ENV_STATE) + 1];

        add_file(key, dir);
        snprintf(path, sizeof(path), "%s/" CG_ENV_STATE, dir);
        add_file(key, path);
        if (cg_kernel_env_packages(dir, path))
                add_file(key, path);
}

/* The supervisor's programs, and what its kernels run: an old one must not serve a new kernel. */
static int add_programs(struct cg_buf *key, const struct cg_client_options *o, struct cg_err *err)
{
        static const char *const programs[] = { CG_LIBEXECDIR "/cellgate-supervisor",
                                                CG_LIBEXECDIR "/cellgate-toolserver", CG_KERNEL_PROGRAM };
        cg_auto_free char *env = NULL;
        char path[PATH_MAX];

        if (o->kernel_env && cg_kernel_env_find(o->kernel_env, &env, err) < 0)
                return -1;
        add(key, env ?: "built-in");
        for (size_t i = 0; i < CG_ARRAY_LEN(programs); i++)
                add_file(key, cg_installed_with(o->supervisor, path, programs[i]));
        /* It may be another program than the installed one. */
        add_file(key, o->supervisor ?: cg_installed_with(NULL, path, programs[0]));
        add_environment(key, env ?: cg_installed_with(o->supervisor, path, CG_KERNEL_ENV));
        /* In a wheel it is used where the installed one cannot be: cg_kernel_env_default(). */
        if (CG_WHEEL && !env && cg_kernel_env_find(CG_ENV_DEFAULT, &env, NULL) == 0)
                add_environment(key, env);
        return 0;
}

int cg_shared_address(const struct cg_client_options *o, char *buf, size_t size, struct cg_err *err)
{
        cg_auto_buf struct cg_buf key = { .max = KEY_MAX };
        cg_auto_free char **env = cg_shared_environ();
        uint8_t digest[SHA256_DIGEST_SIZE];
        char parent[128], hex[17];
        struct sha256_ctx h;
        int r;

        if (cg_runtime_parent("cellgate", parent, sizeof(parent), err) < 0)
                return -1;
        if (!cg_make_own_dir(parent)) /* in /tmp another user may have made it */
                return cg_fail(err, CG_E_STATE,
                               "%s is not a folder of this user with mode 0700; set XDG_RUNTIME_DIR to a "
                               "folder of your own",
                               parent);
        if (!env)
                return cg_fail(err, CG_E_NOMEM, "environment");
        cg_buf_addf(&key, CG_VERSION " wire %d, log %d, spares %d, %lld ms", CG_WIRE_VERSION, o->log_level,
                    o->spares, (long long)o->linger_ms);
        add(&key, o->preload ?: "");
        add(&key, o->audit_key ?: "");
        add(&key, o->audit_head ?: "");
        r = add_programs(&key, o, err);
        if (r < 0)
                return r;
        for (size_t i = 0; env[i]; i++)
                add(&key, env[i]);
        r = cg_confinement(getpid(), &key, err); /* and the first failure of the key */
        if (r < 0)
                return r;
        sha256_init(&h);
        sha256_update(&h, key.len, (const uint8_t *)key.data);
        sha256_digest(&h, sizeof(digest), digest);
        cg_hex(hex, digest, (sizeof(hex) - 1) / 2);
        if (snprintf(buf, size, "%s/shared-%s", parent, hex) >= (int)size)
                return cg_fail(err, CG_E_LIMIT, "the path of the supervisor's folder is too long");
        return 0;
}
