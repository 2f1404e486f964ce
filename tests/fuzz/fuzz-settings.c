/*
 * sandbox/settings.c on foreign bytes. Whatever strict reading accepts the lenient one must too,
 * with the same lists; and what is accepted must keep the promises that those who use it rely on.
 */
#include "sandbox/settings/settings.h"
#include "fuzz.h"

static void check_paths(const struct cg_path_list *list)
{
        for (size_t i = 0; i < list->n; i++) {
                if (!list->v[i].path || !list->v[i].path[0])
                        abort();
        }
}

static void check_strs(const struct cg_strs *list)
{
        for (size_t i = 0; i < list->n; i++) {
                if (!list->v[i])
                        abort();
        }
}

static void check_ports(const struct cg_settings_port *list, size_t n)
{
        if (n > CG_SETTINGS_PORTS_MAX)
                abort();
        for (size_t i = 0; i < n; i++) {
                if (!list[i].inside || !list[i].host)
                        abort();
        }
}

static void check(const struct cg_settings *s)
{
        check_paths(&s->filesystem.deny_read);
        check_paths(&s->filesystem.allow_read);
        check_paths(&s->filesystem.allow_write);
        check_paths(&s->filesystem.deny_write);
        check_strs(&s->network.allowed);
        check_strs(&s->network.denied);
        check_strs(&s->network.denied_addresses);
        check_strs(&s->network.unix_sockets);
        check_ports(s->own.expose, s->own.n_expose);
        check_ports(s->own.reach, s->own.n_reach);
        for (size_t i = 0; i < s->network.allowed.n; i++) {
                /* Everything, or a whole top level, is never allowed. */
                if (s->network.allowed.v[i][0] == '*' && !strchr(s->network.allowed.v[i] + 2, '.'))
                        abort();
        }
        for (size_t i = 0; i < s->creds.n_vars; i++) {
                if (!s->creds.vars[i].what || strpbrk(s->creds.vars[i].what, "=- "))
                        abort();
        }
        for (size_t i = 0; i < s->creds.n_files; i++) {
                if (!s->creds.files[i].what)
                        abort();
        }
        if (s->search_depth < 1 || s->search_depth > 10 || s->network.http_proxy_port > 65535)
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        const char *text = (const char *)data;
        struct cg_settings *strict = NULL, *lenient = NULL;
        struct cg_err err;
        int a = cg_settings_parse(text, size, "input", 0, &strict, &err);
        int b = cg_settings_parse(text, size, "input", CG_SETTINGS_LENIENT, &lenient, &err);

        if (a == 0 && (b < 0 || lenient->unknown))
                abort();
        if (a < 0 && b == 0 && !lenient->unknown)
                abort();
        if (a == 0)
                check(strict);
        if (b == 0)
                check(lenient);
        cg_settings_free(strict);
        cg_settings_free(lenient);
        return 0;
}
