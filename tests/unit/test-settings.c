/* Settings files: what is accepted, what each key becomes, and which text refuses the rest. */
#include "base/ceilings.h"
#include "sandbox/settings/exec_rules.h"
#include "sandbox/settings/settings.h"
#include "cases.h"

static int parse(const char *text, unsigned int flags, struct cg_settings **ret, struct cg_err *err)
{
        *ret = NULL;
        return cg_settings_parse(text, strlen(text), "s.json", flags, ret, err);
}

static struct cg_settings *accepted(const char *text)
{
        struct cg_settings *s;

        OK(parse(text, 0, &s, &err));
        return s;
}

static void refused(const char *text, int code, const char *why)
{
        struct cg_settings *s;

        FAILS(code, why, parse(text, 0, &s, &err));
        assert_null(s);
}

/* Settings that allow *.example.com, with the keys of @text, until the next call. */
static const char *with(const char *text)
{
        static char ret[4096];
        cg_auto_json json_t *more = json_loads(text, JSON_ALLOW_NUL, NULL);
        cg_auto_json json_t *all = json_pack("{s:{s:[s], s:[]}, s:{s:[], s:[], s:[]}}", "network",
                                             "allowedDomains", "*.example.com", "deniedDomains", "filesystem",
                                             "denyRead", "allowWrite", "denyWrite");

        assert_int_equal(json_object_update_recursive(all, more), 0);
        assert_true(json_dumpb(all, ret, sizeof(ret) - 1, JSON_COMPACT) < sizeof(ret));
        ret[json_dumpb(all, NULL, 0, JSON_COMPACT)] = '\0';
        return ret;
}

static const char *with_domain(const char *domain)
{
        static char text[200];

        snprintf(text, sizeof(text), "{\"network\":{\"allowedDomains\":[\"%s\"]}}", domain);
        return with(text);
}

TEST(cases)
{
        EACH_CASE(c, "accepted")
        cg_settings_free(accepted(with(c.in)));
        EACH_CASE(c, "refused")
        refused(with(c.in), CG_E_PARSE, c.out);
        EACH_CASE(c, "unsupported")
        refused(with(c.in), CG_E_UNSUPPORTED, c.out);
        EACH_CASE(c, "refused texts")
        refused(c.in, CG_E_PARSE, c.out);
        EACH_CASE(c, "domains")
        cg_settings_free(accepted(with_domain(c.in)));
        EACH_CASE(c, "refused domains")
        refused(with_domain(c.in), CG_E_PARSE, "network.allowedDomains.0: Invalid domain pattern");
}

static void check_every_key(const struct cg_settings *s)
{
        assert_int_equal(s->network.allowed.n, 2);
        assert_string_equal(s->network.allowed.v[1], "*.c.d:1");
        assert_string_equal(s->network.denied.v[0], "*:22");
        assert_string_equal(s->network.reasons[0].entry, "*:22");
        assert_string_equal(s->network.reasons[0].text, "no");
        assert_true(s->network.strict_allowlist);
        assert_string_equal(s->network.denied_addresses.v[0], "10.0.0.0/8");
        assert_string_equal(s->network.unix_sockets.v[0], "/s");
        assert_true(s->network.all_unix_sockets && s->network.local_binding);
        assert_int_equal(s->network.http_proxy_port, 1);
        assert_int_equal(s->network.socks_proxy_port, 65535);
        assert_string_equal(s->network.mitm_socket, "/m");
        assert_string_equal(s->network.mitm_domains.v[0], "x.y");
        assert_true(s->network.has_parent);
        assert_string_equal(s->network.parent_http, "http://p");
        assert_string_equal(s->network.parent_https, "https://q");
        assert_string_equal(s->network.parent_no_proxy, "z");
        assert_string_equal(s->filesystem.deny_read.v[0].path, "r");
        assert_false(s->filesystem.deny_read.v[0].literal);
        assert_string_equal(s->filesystem.allow_read.v[0].path, "ar");
        assert_string_equal(s->filesystem.allow_write.v[0].path, "w");
        assert_string_equal(s->filesystem.deny_write.v[0].path, "d*");
        assert_true(s->filesystem.deny_write.v[0].literal);
        assert_true(s->filesystem.allow_git_config && s->filesystem.disabled);
        assert_string_equal(s->ignores[0].command, "make");
        assert_string_equal(s->ignores[0].texts.v[0], "/x");
        assert_true(s->weaker_nested && s->nested_user_namespaces);
        assert_int_equal(s->search_depth, 10);
        assert_string_equal(s->safe_directories.v[0], "/g");
}

TEST(parsed_json_is_read_as_text_is)
{
        json_t *o = json_loads(with("{\"cellgate\":{\"hideCredentials\":false}}"), 0, NULL),
               *list = json_array();
        struct cg_settings *s = NULL;
        struct cg_err err = { 0 };
        cg_auto_free char *large = malloc(CG_MAX_SETTINGS);

        assert_non_null(large);
        assert_int_equal(cg_settings_read(o, "s", 0, &s, &err), 0);
        json_decref(o);
        assert_true(s->own.has_hide_credentials && !s->own.hide_credentials);
        s = cg_settings_free(s);
        assert_int_equal(cg_settings_read(list, "s", 0, &s, &err), CG_E_PARSE);
        assert_string_equal(err.msg, "s must be a JSON object");
        memset(large, 'x', CG_MAX_SETTINGS);
        o = json_pack("{s:s#}", "x", large, (int)CG_MAX_SETTINGS);
        assert_int_equal(cg_settings_read(o, "s", 0, &s, &err), CG_E_LIMIT);
        assert_null(s);
        json_decref(o);
        json_decref(list);
}

static void check_own_keys(const struct cg_settings *s)
{
        assert_true(s->own.network_off && s->own.has_env);
        assert_true(s->own.has_hide_credentials && s->own.hide_credentials);
        assert_string_equal(s->own.env.v[0], "LC_*");
        assert_string_equal(s->own.violation_log, "/l");
        assert_int_equal(s->own.limits.memory_bytes, 1 << 20);
        assert_int_equal(s->own.limits.processes, 2);
        assert_int_equal(s->own.limits.open_files, 3);
        assert_int_equal(s->own.limits.file_bytes, 4 << 20);
        assert_int_equal(s->own.limits.cpu_seconds, 5);
        assert_int_equal(s->own.limits.wall_seconds, 6);
        assert_int_equal(s->own.limits.cores_milli, 1500);
        assert_int_equal(s->own.limits.output_bytes, 7 << 20);
        assert_int_equal(s->own.n_expose, 2);
        assert_int_equal(s->own.expose[0].inside, 80);
        assert_int_equal(s->own.expose[0].host, 80);
        assert_int_equal(s->own.expose[1].inside, 81);
        assert_int_equal(s->own.expose[1].host, 90);
        assert_int_equal(s->own.n_reach, 1);
        assert_int_equal(s->own.reach[0].host, 5432);
}

TEST(defaults)
{
        struct cg_settings *s = NULL;

        OK(cg_settings_default(&s, &err));
        assert_int_equal(s->network.allowed.n, 0);
        assert_int_equal(s->filesystem.allow_write.n, 0);
        assert_int_equal(s->search_depth, 3);
        assert_false(s->filesystem.disabled || s->weaker_nested || s->nested_user_namespaces ||
                     s->network.all_unix_sockets);
        cg_settings_free(s);
        assert_null(cg_settings_free(NULL));
}

static void check_credentials(const struct cg_settings *s)
{
        assert_string_equal(s->creds.files[0].what, "~/k");
        assert_int_equal(s->creds.files[0].mode, CG_CRED_MASK);
        assert_string_equal(s->creds.files[0].extract, "t=(\\S+)");
        assert_int_equal(s->creds.files[0].no_match, CG_CRED_NO_MATCH_ERROR);
        assert_true(s->creds.files[0].mask_duplicates);
        assert_int_equal(s->creds.vars[0].mode, CG_CRED_DENY);
        assert_int_equal(s->creds.vars[0].no_match, CG_CRED_NO_MATCH_WARN);
        assert_string_equal(s->creds.vars[1].inject_hosts.v[0], "api.example.com");
}

TEST(keys_arrive)
{
        static const struct {
                const char *section;
                void (*check)(const struct cg_settings *s);
        } all[] = { { "every key", check_every_key },
                    { "own keys", check_own_keys },
                    { "credentials", check_credentials } };

        for (size_t i = 0; i < CG_ARRAY_LEN(all); i++)
                EACH_CASE(c, all[i].section)
                {
                        struct cg_settings *s = accepted(i ? with(c.in) : c.in);

                        all[i].check(s);
                        cg_settings_free(s);
                }
}

TEST(unknown_keys)
{
        const char *strange = with("{\"network\":{\"zzzz\":1},\"comment\":\"x\"}");
        struct cg_settings *s;

        refused(strange, CG_E_PARSE, "network: Unrecognized key(s) in object: 'zzzz'");
        OK(parse(strange, CG_SETTINGS_LENIENT, &s, &err));
        assert_string_equal(s->unknown, "network.zzzz");
        cg_settings_free(s);
        FAILS(CG_E_PARSE, "did you mean 'strictAllowlist'",
              parse(with("{\"network\":{\"strictAllowList\":true}}"), CG_SETTINGS_LENIENT, &s, &err));
        /* Where srt is strict there is no leniency. */
        FAILS(CG_E_PARSE, "", parse(with("{\"credentials\":{\"zzzz\":1}}"), CG_SETTINGS_LENIENT, &s, &err));
}

/* Not every machine has zsh: tests/api/test_exec_rules.py starts the others. */
TEST(shells_that_read_a_startup_file)
{
        static const struct {
                const char *program, *name, *input;
                enum cg_exec want;
        } cases[] = { { "/usr/bin/dash", "sh", "socket", CG_EXEC_ALLOW },
                      { "/usr/bin/dash", "-/sh", "", CG_EXEC_ASK },
                      { "/usr/bin/bash", "bash", "pipe", CG_EXEC_ALLOW },
                      { "/usr/bin/bash", "bash", "socket", CG_EXEC_ASK },
                      { "/usr/bin/zsh", "zsh", "", CG_EXEC_ASK },
                      { "/usr/bin/zsh", "sh", "", CG_EXEC_ASK } };

        for (size_t i = 0; i < CG_ARRAY_LEN(cases); i++) {
                cg_auto_json json_t *rules = json_pack("{s:s, s:[{s:s}]}", "default", "ask", "allow", "line",
                                                       "x");
                cg_auto_json json_t *question = json_pack("{s:s, s:[s, s, s], s:b, s:s}", "program",
                                                          cases[i].program, "argv", cases[i].name, "-c", "x",
                                                          "writable", 0, "stdin", cases[i].input);
                char rule[CG_EXEC_RULE_NAME];

                assert_int_equal(cg_exec_rules_judge(rules, question, rule), cases[i].want);
        }
}
