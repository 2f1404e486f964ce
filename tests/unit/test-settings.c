/* Settings files: what is accepted, what each key becomes, and which text refuses the rest. */
#include <stdio.h>
#include <string.h>

#include "base/ceilings.h"
#include "base/util.h"
#include "sandbox/settings/settings.h"
#include "unit.h"

#define NET            "\"network\":{\"allowedDomains\":[],\"deniedDomains\":[]}"
#define FS             "\"filesystem\":{\"denyRead\":[],\"allowWrite\":[],\"denyWrite\":[]}"
#define NET_WITH(more) "{\"network\":{\"deniedDomains\":[]," more "}," FS "}"
#define ALLOWED(list)  NET_WITH("\"allowedDomains\":[" list "]")
#define NETKEY(more)   NET_WITH("\"allowedDomains\":[\"*.example.com\"]," more)
#define FSKEY(more)    "{" NET ",\"filesystem\":{\"denyRead\":[],\"allowWrite\":[],\"denyWrite\":[]," more "}}"
#define FSLISTS(r, w, d) \
        "{" NET ",\"filesystem\":{\"denyRead\":[" r "],\"allowWrite\":[" w "],\"denyWrite\":[" d "]}}"
#define TOP(more) "{" NET "," FS "," more "}"
#define CREDS(more) \
        "{\"network\":{\"allowedDomains\":[\"*.example.com\"],\"deniedDomains\":[]}," FS \
        ",\"credentials\":{" more "}}"

static struct cg_settings *accept(const char *text)
{
        struct cg_settings *s = NULL;
        struct cg_err err = { 0 };

        if (cg_settings_parse(text, strlen(text), "s.json", 0, &s, &err) < 0)
                fail_msg("%s: %s", text, err.msg);
        return s;
}

static void refuse(const char *text, int code, const char *why)
{
        struct cg_settings *s = NULL;
        struct cg_err err = { 0 };
        int e = cg_settings_parse(text, strlen(text), "s.json", 0, &s, &err);

        if (e == 0)
                fail_msg("accepted: %s", text);
        assert_int_equal(e, code);
        if (!strstr(err.msg, why))
                fail_msg("%s: \"%s\" is not in \"%s\"", text, why, err.msg);
        assert_null(s);
}

TEST(every_key_arrives)
{
        struct cg_settings *s = accept(
                "{\"network\":{\"allowedDomains\":[\"a.b\",\"*.c.d:1\"],\"deniedDomains\":[\"*:22\"],"
                "\"deniedDomainReasons\":{\"*:22\":\"no\"},\"strictAllowlist\":true,\"deniedResolvedAddresses\":[\"10.0.0.0/8\"],"
                "\"allowUnixSockets\":[\"/s\"],\"allowAllUnixSockets\":true,\"allowLocalBinding\":true,\"httpProxyPort\":1,"
                "\"socksProxyPort\":65535,\"mitmProxy\":{\"socketPath\":\"/m\",\"domains\":[\"x.y\"]},"
                "\"parentProxy\":{\"http\":\"http://p\",\"https\":\"https://q\",\"noProxy\":\"z\"}},"
                "\"filesystem\":{\"denyRead\":[\"r\"],\"allowRead\":[\"ar\"],\"allowWrite\":[\"w\"],"
                "\"denyWrite\":[{\"path\":\"d*\",\"literal\":true}],\"allowGitConfig\":true,\"disabled\":true},"
                "\"ignoreViolations\":{\"make\":[\"/x\"]},\"enableWeakerNestedSandbox\":true,\"allowNestedUserNamespaces\":true,"
                "\"mandatoryDenySearchDepth\":10,\"git\":{\"safeDirectories\":[\"/g\"]}}");

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
        cg_settings_free(s);
}

TEST(parsed_json_is_read_as_text_is)
{
        static const char text[] = TOP("\"cellgate\":{\"hideCredentials\":false}");
        json_t *o = json_loads(text, 0, NULL), *list = json_array();
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

TEST(our_own_keys_arrive)
{
        struct cg_settings *s = accept(
                TOP("\"cellgate\":{\"networkOff\":true,\"env\":[\"LC_*\"],\"violationLog\":\"/l\","
                    "\"hideCredentials\":true,"
                    "\"ports\":{\"expose\":[80,{\"inside\":81,\"host\":90}],\"reach\":[5432]},"
                    "\"limits\":{\"memoryMb\":1,\"processes\":2,\"openFiles\":3,"
                    "\"fileMb\":4,\"cpuSeconds\":5,\"wallSeconds\":6,\"cores\":1.5,\"outputMb\":7}}"));

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
        cg_settings_free(s);
        refuse(TOP("\"cellgate\":{\"limits\":{\"memoryMb\":0}}"), CG_E_PARSE,
               "cellgate.limits.memoryMb: Number must be greater");
        refuse(TOP("\"cellgate\":{\"limits\":{\"memoryMb\":1.5}}"), CG_E_PARSE,
               "cellgate.limits.memoryMb: Expected integer");
        refuse(TOP("\"cellgate\":{\"limits\":{\"cores\":0.001}}"), CG_E_PARSE,
               "cellgate.limits.cores: Number must be greater");
        refuse(TOP("\"cellgate\":{\"limits\":{\"cores\":\"2\"}}"), CG_E_PARSE,
               "cellgate.limits.cores: Expected number");
        refuse(TOP("\"cellgate\":{\"limits\":{\"memoryMB\":9}}"), CG_E_PARSE, "did you mean 'memoryMb'");
        refuse(TOP("\"cellgate\":{\"ports\":{\"expose\":[0]}}"), CG_E_PARSE,
               "cellgate.ports.expose.0: Number must be greater");
        refuse(TOP("\"cellgate\":{\"ports\":{\"expose\":[\"80\"]}}"), CG_E_PARSE,
               "expose.0: Expected number");
        refuse(TOP("\"cellgate\":{\"ports\":{\"expose\":[80,{\"inside\":81,\"host\":80}]}}"), CG_E_PARSE,
               "expose.1: port 80 of this machine is listed twice");
        refuse(TOP("\"cellgate\":{\"ports\":{\"reach\":[80,{\"inside\":80,\"host\":81}]}}"), CG_E_PARSE,
               "reach.1: port 80 inside is listed twice");
        refuse(TOP("\"cellgate\":{\"ports\":{\"reach\":[3128]}}"), CG_E_PARSE,
               "reach.0: port 3128 inside is the proxy's");
        refuse(TOP("\"cellgate\":{\"ports\":{\"reach\":[{\"inside\":80}]}}"), CG_E_PARSE, "host");
        refuse(TOP("\"cellgate\":{\"ports\":{\"reach\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}}"),
               CG_E_PARSE, "more than 16");
        refuse(TOP("\"cellgate\":{\"x\":1}"), CG_E_PARSE, "cellgate: Unrecognized key(s) in object: 'x'");
        refuse(TOP("\"cellgate\":{\"violationLog\":\"rel\"}"), CG_E_PARSE,
               "cellgate.violationLog: path must be absolute");
}

TEST(defaults)
{
        struct cg_settings *s = NULL;
        struct cg_err err = { 0 };

        assert_int_equal(cg_settings_default(&s, &err), 0);
        assert_int_equal(s->network.allowed.n, 0);
        assert_int_equal(s->filesystem.allow_write.n, 0);
        assert_int_equal(s->search_depth, 3);
        assert_false(s->filesystem.disabled || s->weaker_nested || s->nested_user_namespaces ||
                     s->network.all_unix_sockets);
        cg_settings_free(s);
        assert_null(cg_settings_free(NULL));
}

TEST(domains)
{
        static const char *const good[] = { "example.com",  "*.example.com",       "localhost",
                                            "192.168.1.10", "api.example.com:443", "*.example.com:8443",
                                            "[::1]",        "[2001:db8::1]:443",   "a.b.c.d.e",
                                            "x.y:65535",    "localhost:1",         "my_host.example.com" };
        static const char *const bad[] = { "*",
                                           "*.com",
                                           "nodot",
                                           ".example.com",
                                           "example.com.",
                                           "https://example.com",
                                           "example.com/path",
                                           "example.com:0",
                                           "example.com:65536",
                                           "example.com:080",
                                           "example.com:",
                                           "::1",
                                           "2001:db8::1:443",
                                           "[::1",
                                           "[::1]x",
                                           "[::1]:0",
                                           "*.",
                                           "*.*.com",
                                           "a.*.com",
                                           "a..b",
                                           "*.a..b",
                                           "",
                                           "x.com:443.allowed.com",
                                           "a b.com",
                                           "[example.com]",
                                           "*:22",
                                           "u@a.com",
                                           "b\xc3\xbc"
                                           "cher.a.b",
                                           "*.\xef\xbd\x85vil.com" };
        char text[400];

        for (size_t i = 0; i < CG_ARRAY_LEN(good); i++) {
                snprintf(text, sizeof(text), ALLOWED("\"%s\""), good[i]);
                cg_settings_free(accept(text));
        }
        for (size_t i = 0; i < CG_ARRAY_LEN(bad); i++) {
                snprintf(text, sizeof(text), ALLOWED("\"%s\""), bad[i]);
                refuse(text, CG_E_PARSE, "network.allowedDomains.0: Invalid domain pattern");
        }
        cg_settings_free(accept(
                "{\"network\":{\"allowedDomains\":[],\"deniedDomains\":[\"*\",\"*:22\",\"a.b\"]}," FS "}"));
        refuse("{\"network\":{\"allowedDomains\":[],\"deniedDomains\":[\"*.com\"]}," FS "}", CG_E_PARSE,
               "network.deniedDomains.0");
        refuse("{\"network\":{\"allowedDomains\":[],\"deniedDomains\":[\"b\xc3\xbc"
               "cher.a.b\"]}," FS "}",
               CG_E_PARSE, "xn--...");
}

TEST(addresses_and_ports)
{
        cg_settings_free(accept(NETKEY("\"deniedResolvedAddresses\":[\"1.2.3.4\","
                                       "\"0.0.0.0/0\",\"::/0\",\"::ffff:10.0.0.0/104\"]")));
        refuse(NETKEY("\"deniedResolvedAddresses\":[\"10.0.0.0/33\"]"), CG_E_PARSE,
               "Invalid IP address or CIDR range");
        refuse(NETKEY("\"deniedResolvedAddresses\":[\"fc00::/129\"]"), CG_E_PARSE,
               "deniedResolvedAddresses.0");
        refuse(NETKEY("\"deniedResolvedAddresses\":[\"10.0.0.0/\"]"), CG_E_PARSE, "Invalid IP");
        refuse(NETKEY("\"deniedResolvedAddresses\":[\"10.0.0\"]"), CG_E_PARSE, "Invalid IP");
        refuse(NETKEY("\"httpProxyPort\":0"), CG_E_PARSE,
               "network.httpProxyPort: Number must be greater than or equal to 1");
        refuse(NETKEY("\"httpProxyPort\":65536"), CG_E_PARSE, "less than or equal to 65535");
        refuse(NETKEY("\"httpProxyPort\":1.5"), CG_E_PARSE, "Expected integer, received float");
        refuse(NETKEY("\"httpProxyPort\":\"80\""), CG_E_PARSE, "Expected number, received string");
        refuse(NETKEY("\"mitmProxy\":{\"socketPath\":\"/x\",\"domains\":[]}"), CG_E_PARSE,
               "at least 1 element");
        refuse(NETKEY("\"parentProxy\":{\"http\":\"nourl\"}"), CG_E_PARSE, "parentProxy.http: Invalid url");
}

TEST(paths)
{
        refuse("{" NET ",\"filesystem\":{\"denyRead\":[\"\"],\"allowWrite\":[],\"denyWrite\":[]}}",
               CG_E_PARSE, "filesystem.denyRead.0: Path cannot be empty");
        refuse(FSLISTS("{\"path\":\"x\",\"literal\":true,\"z\":1}", "", ""), CG_E_PARSE,
               "Expected a path, or { \"path\"");
        refuse("{" NET
               ",\"filesystem\":{\"denyRead\":[{\"path\":\"x\",\"literal\":false}],\"allowWrite\":[],\"denyWrite\":[]}}",
               CG_E_PARSE, "Expected a path");
        refuse("{" NET ",\"filesystem\":{\"denyRead\":[\"/a/*/\"],\"allowWrite\":[],\"denyWrite\":[]}}",
               CG_E_PARSE, "filesystem.denyRead.0: Deny glob");
        refuse("{" NET ",\"filesystem\":{\"denyRead\":[],\"allowWrite\":[],\"denyWrite\":[\"~/*/\"]}}",
               CG_E_PARSE, "Deny glob");
        cg_settings_free(accept(FSLISTS("\"a/*/\",\"/a/\"", "\"/a/*/\"", "")));
        cg_settings_free(accept(
                "{" NET ",\"filesystem\":{\"disabled\":true,\"denyRead\":[\"/a/*/\"],\"allowWrite\":[],"
                "\"denyWrite\":[]}}"));
        refuse("{" NET ",\"filesystem\":{\"denyRead\":[\"a\\u0000b\"],\"allowWrite\":[],\"denyWrite\":[]}}",
               CG_E_PARSE, "NUL");
}

TEST(what_is_missing_or_of_the_wrong_kind)
{
        refuse("{" NET "}", CG_E_PARSE, "filesystem: Required");
        refuse("{" FS "}", CG_E_PARSE, "network: Required");
        refuse("{\"network\":{\"allowedDomains\":[]}," FS "}", CG_E_PARSE, "network.deniedDomains: Required");
        refuse("{" NET ",\"filesystem\":{\"denyRead\":[],\"allowWrite\":[]}}", CG_E_PARSE,
               "filesystem.denyWrite: Required");
        refuse("{\"network\":[]," FS "}", CG_E_PARSE, "network: Expected object, received array");
        refuse(NET_WITH("\"allowedDomains\":\"a.b\""), CG_E_PARSE,
               "network.allowedDomains: Expected array, received string");
        refuse(ALLOWED("1"), CG_E_PARSE, "network.allowedDomains.0: Expected string, received number");
        refuse(FSKEY("\"disabled\":1"), CG_E_PARSE, "filesystem.disabled: Expected boolean, received number");
        refuse(FSKEY("\"allowGitConfig\":null"), CG_E_PARSE, "Expected boolean, received null");
        refuse(TOP("\"mandatoryDenySearchDepth\":11"), CG_E_PARSE,
               "mandatoryDenySearchDepth: Number must be less");
        refuse(TOP("\"mandatoryDenySearchDepth\":0"), CG_E_PARSE, "mandatoryDenySearchDepth");
        refuse(TOP("\"bwrapPath\":\"bwrap\""), CG_E_PARSE, "bwrapPath: path must be absolute");
        refuse(TOP("\"ripgrep\":{}"), CG_E_PARSE, "ripgrep.command: Required");
        refuse(TOP("\"ignoreViolations\":{\"a\":\"b\"}"), CG_E_PARSE, "ignoreViolations.a: Expected array");
        refuse("", CG_E_PARSE, "not valid JSON");
        refuse("{", CG_E_PARSE, "s.json is not valid JSON");
        refuse("[]", CG_E_PARSE, "must be a JSON object");
        refuse("{" NET "," NET "," FS "}", CG_E_PARSE, "duplicate");
}

TEST(credentials)
{
        struct cg_settings *s = accept(
                CREDS("\"files\":[{\"path\":\"~/k\",\"mode\":\"mask\",\"extract\":\"t=(\\\\S+)\","
                      "\"onExtractNoMatch\":\"error\",\"maskDuplicates\":true}],"
                      "\"allowPlaintextInject\":true,"
                      "\"envVars\":[{\"name\":\"A\",\"mode\":\"deny\"},"
                      "{\"name\":\"B\",\"mode\":\"mask\",\"injectHosts\":[\"api.example.com\"]}]"));

        assert_string_equal(s->creds.files[0].what, "~/k");
        assert_int_equal(s->creds.files[0].mode, CG_CRED_MASK);
        assert_string_equal(s->creds.files[0].extract, "t=(\\S+)");
        assert_int_equal(s->creds.files[0].no_match, CG_CRED_NO_MATCH_ERROR);
        assert_true(s->creds.files[0].mask_duplicates);
        assert_int_equal(s->creds.vars[0].mode, CG_CRED_DENY);
        assert_int_equal(s->creds.vars[0].no_match, CG_CRED_NO_MATCH_WARN);
        assert_string_equal(s->creds.vars[1].inject_hosts.v[0], "api.example.com");
        cg_settings_free(s);
        refuse(CREDS("\"injectHosts\":[]"), CG_E_PARSE,
               "credentials: Unrecognized key(s) in object: 'injectHosts'");
        refuse(CREDS("\"envVars\":[{\"name\":\"A-B\",\"mode\":\"deny\"}]"), CG_E_PARSE,
               "credentials.envVars.0.name: Environment");
        refuse(CREDS("\"envVars\":[{\"name\":\"A\",\"mode\":\"hide\"}]"), CG_E_PARSE,
               "Expected 'deny' | 'mask'");
        refuse(CREDS("\"envVars\":[{\"name\":\"A\",\"mode\":\"mask\"}]"), CG_E_PARSE,
               "Credential masking requires");
        refuse(CREDS("\"envVars\":[{\"name\":\"A\",\"mode\":\"mask\",\"injectHosts\":[]}]"), CG_E_PARSE,
               "explicitly empty");
        cg_settings_free(
                accept(CREDS("\"envVars\":[{\"name\":\"A\",\"mode\":\"deny\",\"injectHosts\":[]}]")));
        refuse(CREDS("\"envVars\":[{\"name\":\"A\",\"mode\":\"deny\",\"injectHosts\":[\"b.c\"]}]"),
               CG_E_PARSE, "credentials.envVars.0.injectHosts.0: injectHosts entry \"b.c\" is not reachable");
        refuse(CREDS("\"envVars\":[{\"name\":\"A\",\"mode\":\"deny\",\"injectHosts\":[\"*.com.example\"]}]"),
               CG_E_PARSE, "reachable");
        cg_settings_free(accept(CREDS(
                "\"envVars\":[{\"name\":\"A\",\"mode\":\"deny\",\"injectHosts\":[\"*.x.Example.com\"]}]")));
        refuse(CREDS("\"files\":[{\"path\":\"d/\",\"mode\":\"mask\"}],\"allowPlaintextInject\":true"),
               CG_E_PARSE, "single file");
        refuse(CREDS("\"files\":[{\"path\":\"f\",\"mode\":\"deny\",\"extract\":\"no group\"}]"), CG_E_PARSE,
               "capturing group");
        refuse(CREDS("\"files\":[{\"path\":\"f\",\"mode\":\"deny\",\"extract\":\"(\"}]"), CG_E_PARSE,
               "not a valid regular expression");
}

/* Each as srt 0.0.83 has it. */
TEST(decoded_credentials)
{
#define DECODE(mode, more) \
        CREDS("\"files\":[{\"path\":\"f\",\"mode\":\"" mode "\"," more "}],\"allowPlaintextInject\":true")
        cg_settings_free(accept(DECODE("deny", "\"decode\":\"jwt\"")));
        cg_settings_free(accept(DECODE("deny", "\"decode\":\"jwt\",\"maskClaims\":[\"sub\"]")));
        cg_settings_free(accept(CREDS(
                "\"envVars\":[{\"name\":\"A\",\"mode\":\"deny\",\"maskClaims\":[\"b\"],\"decode\":\"jwt\"}]")));
        refuse(DECODE("mask", "\"decode\":\"jwt\""), CG_E_UNSUPPORTED,
               "credentials.files.0.decode: masking inside JSON Web Tokens");
        refuse(DECODE("deny", "\"decode\":\"base64\""), CG_E_PARSE,
               "credentials.files.0.decode: Invalid enum value");
        refuse(DECODE("deny", "\"decode\":true"), CG_E_PARSE,
               "credentials.files.0.decode: Invalid enum value");
        refuse(DECODE("deny", "\"maskClaims\":[\"sub\"]"), CG_E_PARSE, "maskClaims requires decode");
        refuse(DECODE("deny", "\"decode\":\"jwt\",\"maskClaims\":[]"), CG_E_PARSE,
               "maskClaims is explicitly empty");
        refuse(DECODE("deny", "\"decode\":\"jwt\",\"maskClaims\":[\"\"]"), CG_E_PARSE,
               "maskClaims.0: String must contain");
#undef DECODE
}

TEST(mach_services)
{
        cg_settings_free(
                accept(NETKEY("\"allowMachLookup\":[\"com.example.*\",\"*\",\"com.example.a\",\"\"]")));
        refuse(NETKEY("\"allowMachLookup\":[\"a\",\"com.*.x\"]"), CG_E_PARSE,
               "network.allowMachLookup.1: Wildcards are only");
        refuse(NETKEY("\"allowMachLookup\":[\"*.example\"]"), CG_E_PARSE, "single trailing");
        refuse(NETKEY("\"allowMachLookup\":[\"com.**\"]"), CG_E_PARSE, "single trailing");
}

TEST(unsupported_by_name)
{
        refuse(NETKEY("\"tlsTerminate\":{}"), CG_E_UNSUPPORTED,
               "network.tlsTerminate: TLS termination is not supported");
        refuse(NETKEY("\"filterRequest\":1"), CG_E_UNSUPPORTED, "network.filterRequest");
        refuse(CREDS("\"awsPairs\":[]"), CG_E_UNSUPPORTED, "credentials.awsPairs");
        refuse(CREDS("\"sigv4\":{}"), CG_E_UNSUPPORTED, "credentials.sigv4");
        refuse(CREDS("\"envVars\":[{\"name\":\"A\",\"mode\":\"mask\",\"decode\":\"jwt\"}]"), CG_E_UNSUPPORTED,
               "envVars.0.decode");
}

TEST(unknown_keys)
{
        static const char strange[] =
                "{\"network\":{\"allowedDomains\":[],\"deniedDomains\":[],\"zzzz\":1}," FS ","
                "\"comment\":\"x\"}";
        static const char typo[] = NETKEY("\"strictAllowList\":true");
        struct cg_settings *s = NULL;
        struct cg_err err = { 0 };

        refuse(strange, CG_E_PARSE, "network: Unrecognized key(s) in object: 'zzzz'");
        refuse(typo, CG_E_PARSE, "did you mean 'strictAllowlist'");
        assert_int_equal(cg_settings_parse(strange, strlen(strange), "s", CG_SETTINGS_LENIENT, &s, &err), 0);
        assert_string_equal(s->unknown, "network.zzzz");
        cg_settings_free(s);
        assert_int_equal(cg_settings_parse(typo, strlen(typo), "s", CG_SETTINGS_LENIENT, &s, &err),
                         CG_E_PARSE);
        /* Where srt is strict there is no leniency. */
        assert_int_equal(cg_settings_parse(CREDS("\"zzzz\":1"), strlen(CREDS("\"zzzz\":1")), "s",
                                           CG_SETTINGS_LENIENT, &s, &err),
                         CG_E_PARSE);
}
