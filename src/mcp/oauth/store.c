/* See store.h. */
#include "mcp/oauth/store.h"

#include <nettle/sha2.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/state_dir.h"
#include "base/text.h"
#include "mcp/ceilings.h"

#define FOLDER "mcp-login"
/* 16 bytes of the digest, as hexadecimal digits. */
#define STEM 32

/* @suffix: ".json" or ".lock". */
static int file_path(const char *name, const char *url, const char *suffix, char path[PATH_MAX],
                     struct cg_err *err)
{
        unsigned char digest[SHA256_DIGEST_SIZE];
        struct sha256_ctx sha;
        char stem[STEM + 1];
        size_t n;
        int r = cg_state_folder(FOLDER, path, err);

        if (r < 0)
                return cg_err_prefix(err, "no token can be stored");
        sha256_init(&sha);
        sha256_update(&sha, strlen(name) + 1, (const uint8_t *)name);
        sha256_update(&sha, strlen(url), (const uint8_t *)url);
        sha256_digest(&sha, sizeof(digest), digest);
        cg_hex(stem, digest, STEM / 2);
        n = strlen(path);
        snprintf(path + n, PATH_MAX - n, "/%s%s", stem, suffix);
        return 0;
}

/* CG_E_NOTFOUND: there is no such file. */
static int read_record(const char *path, json_t **ret, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        struct cg_err why;
        struct stat st;
        size_t len;
        int r;

        if (lstat(path, &st) < 0 && errno == ENOENT)
                return cg_fail(err, CG_E_NOTFOUND, "%s: nothing is stored", path);
        r = cg_read_regular(path, CG_OAUTH_MAX_RECORD, &text, &len, err);
        if (r < 0)
                return r;
        /* Without the parser's message, which could quote a token. */
        if (cg_json_object(text, len, path, ret, &why) < 0)
                return cg_fail(err, CG_E_PARSE, "%s is damaged: remove it, and sign in again", path);
        return 0;
}

int cg_oauth_store_load(const char *name, const char *url, json_t **ret, struct cg_err *err)
{
        char path[PATH_MAX];
        int r = file_path(name, url, ".json", path, err);

        if (r >= 0)
                r = read_record(path, ret, err);
        if (r != CG_E_NOTFOUND)
                return r;
        *ret = json_pack("{ss ss}", "name", name, "url", url);
        return cg_made(*ret, "stored authorization", err);
}

int cg_oauth_store_lock(const char *name, const char *url, const atomic_bool *stop, int *lock, json_t **ret,
                        struct cg_err *err)
{
        cg_auto_fd int fd = -1;
        char path[PATH_MAX];
        int r = file_path(name, url, ".lock", path, err);

        if (r < 0)
                return r;
        r = cg_lock_file(path, CG_OAUTH_LOCK_MS, stop, &fd, err);
        if (r == CG_TIMEOUT)
                return cg_fail(err, CG_E_TIMEDOUT,
                               "%s: another process has been refreshing the token for %d s", path,
                               CG_OAUTH_LOCK_MS / 1000);
        if (r < 0)
                return r;
        r = cg_oauth_store_load(name, url, ret, err);
        if (r < 0)
                return r;
        *lock = cg_steal_fd(&fd);
        return 0;
}

int cg_oauth_store_save(const json_t *record, struct cg_err *err)
{
        const char *name = json_string_value(json_object_get(record, "name"));
        const char *url = json_string_value(json_object_get(record, "url"));
        cg_auto_free char *text = NULL;
        char path[PATH_MAX];
        size_t len;
        int r;

        if (!name || !url)
                return cg_fail(err, CG_E_INVAL, "stored authorization without its server");
        r = file_path(name, url, ".json", path, err);
        if (r < 0)
                return r;
        text = cg_json_text(record, &len);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "stored authorization");
        if (len > CG_OAUTH_MAX_RECORD)
                return cg_fail(err, CG_E_LIMIT, "stored authorization of over %zu bytes",
                               CG_OAUTH_MAX_RECORD);
        return cg_write_atomically(path, text, len, 0600, err);
}

int cg_oauth_store_urls(const char *name, json_t **ret, struct cg_err *err)
{
        cg_auto_json json_t *urls = json_array(), *paths = NULL;
        char folder[PATH_MAX];
        const json_t *path;
        size_t i;
        int r;

        if (!urls)
                return cg_fail(err, CG_E_NOMEM, "stored authorizations");
        r = cg_state_folder(FOLDER, folder, err);
        if (r < 0)
                return r;
        r = cg_state_files(folder, CG_OAUTH_MAX_RECORDS, &paths, err);
        if (r < 0)
                return r;
        json_array_foreach(paths, i, path) {
                cg_auto_json json_t *j = NULL;
                const char *its;

                if (read_record(json_string_value(path), &j, NULL) < 0)
                        continue;
                its = json_string_value(json_object_get(j, "name"));
                if (its && strcmp(its, name) == 0 && json_is_string(json_object_get(j, "url")))
                        json_array_append(urls, json_object_get(j, "url"));
        }
        *ret = CG_STEAL(urls);
        return 0;
}

int cg_oauth_store_remove(const char *name, const char *url, struct cg_err *err)
{
        char path[PATH_MAX];
        int r = file_path(name, url, ".json", path, err);

        if (r < 0)
                return r;
        if (unlink(path) < 0 && errno != ENOENT)
                return cg_fail_errno(err, "%s", path);
        return 0;
}
