/*
 * The "network" object of a settings file. cellgate-egress links this file alone of the schema: the
 * decider of the proxy reads the same object.
 */

#include "sandbox/settings/read.h"

static const char *no_tls(const char *unused)
{
        return "TLS termination is not supported: the proxy checks host and port and passes TLS on unread";
}

static const char *no_function(const char *unused)
{
        return "a function cannot be part of a settings file";
}

static int read_reasons(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        static const struct cg_field text = CG_FIELD_TO(cg_settings_reason, text, "text", cg_reader_str);
        struct cg_settings_network *net = to;
        void *items = NULL;
        int status = cg_reader_members(r, v, &text, sizeof(*net->reasons), &items, &net->n_reasons);

        net->reasons = items;
        return status;
}

static int read_mitm(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        static const struct cg_field fields[] = {
                CG_FIELD_TO(cg_settings_network, mitm_socket, "socketPath", cg_reader_str, .required = true),
                CG_FIELD_TO(cg_settings_network, mitm_domains, "domains", cg_reader_strs, .required = true,
                            .check = cg_check_domain),
        };
        struct cg_settings_network *net = to;
        int status = cg_reader_object(r, v, fields, CG_ARRAY_LEN(fields), CG_UNKNOWN_AS_SRT, net);

        if (status == 0 && net->mitm_domains.n == 0)
                return cg_reader_fail(r, "domains: Array must contain at least 1 element(s)");
        return status;
}

static int read_parent(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        static const struct cg_field fields[] = {
                CG_FIELD_TO(cg_settings_network, parent_http, "http", cg_reader_str, .check = cg_check_url),
                CG_FIELD_TO(cg_settings_network, parent_https, "https", cg_reader_str, .check = cg_check_url),
                CG_FIELD_TO(cg_settings_network, parent_no_proxy, "noProxy", cg_reader_str),
        };
        struct cg_settings_network *net = to;

        net->has_parent = true;
        return cg_reader_object(r, v, fields, CG_ARRAY_LEN(fields), CG_UNKNOWN_AS_SRT, net);
}

static int read_ambiguous(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        const char *s = json_string_value(v) ?: "";

        /* It has an effect together with filterRequest only, which no file can have. */
        if (strcmp(s, "refuse") == 0 || strcmp(s, "asSpelled") == 0 || strcmp(s, "normalize") == 0)
                return 0;
        return cg_reader_fail(r, "Invalid enum value. Expected 'refuse' | 'asSpelled' | 'normalize'");
}

int cg_reader_network(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        static const struct cg_field fields[] = {
                CG_FIELD_TO(cg_settings_network, allowed, "allowedDomains", cg_reader_strs, .required = true,
                            .check = cg_check_allowed_domain),
                CG_FIELD_TO(cg_settings_network, denied, "deniedDomains", cg_reader_strs, .required = true,
                            .check = cg_check_denied_domain),
                CG_FIELD("deniedDomainReasons", read_reasons),
                CG_FIELD_TO(cg_settings_network, strict_allowlist, "strictAllowlist", cg_reader_bool),
                CG_FIELD_TO(cg_settings_network, denied_addresses, "deniedResolvedAddresses", cg_reader_strs,
                            .check = cg_check_address_range),
                CG_FIELD_TO(cg_settings_network, unix_sockets, "allowUnixSockets", cg_reader_strs),
                CG_FIELD_TO(cg_settings_network, all_unix_sockets, "allowAllUnixSockets", cg_reader_bool),
                CG_FIELD_TO(cg_settings_network, local_binding, "allowLocalBinding", cg_reader_bool),
                CG_FIELD("allowMachLookup", cg_reader_ignored_strs, .check = cg_check_mach_name),
                CG_FIELD_TO(cg_settings_network, http_proxy_port, "httpProxyPort", cg_reader_int, .min = 1,
                            .max = 65535),
                CG_FIELD_TO(cg_settings_network, socks_proxy_port, "socksProxyPort", cg_reader_int, .min = 1,
                            .max = 65535),
                CG_FIELD("mitmProxy", read_mitm),
                CG_FIELD("parentProxy", read_parent),
                CG_FIELD("tlsTerminate", cg_reader_refused, .check = no_tls),
                CG_FIELD("filterRequest", cg_reader_refused, .check = no_function),
                CG_FIELD("allowPlaintextHeaderSet", cg_reader_ignored_bool),
                CG_FIELD_TO(cg_settings_network, strip_response_headers, "stripResponseHeaders",
                            cg_reader_strs, .min = 1),
                CG_FIELD_TO(cg_settings_network, refuse_opaque_tunnels, "refuseOpaqueTunnels",
                            cg_reader_bool),
                CG_FIELD_TO(cg_settings_network, require_host_match, "requireHostMatch", cg_reader_bool),
                CG_FIELD("ambiguousRequestTarget", read_ambiguous),
        };

        return cg_reader_object(r, v, fields, CG_ARRAY_LEN(fields), CG_UNKNOWN_AS_SRT, to);
}

int cg_settings_read_network(const json_t *o, struct cg_settings_network *ret, struct cg_err *err)
{
        struct cg_settings s = { .root = NULL };
        struct cg_reader r = {
                .settings = &s, .what = "the network policy", .flags = CG_SETTINGS_LENIENT, .err = err
        };
        int status;

        cg_reader_enter(&r, "network");
        status = cg_reader_network(&r, o, NULL, &s.network);
        if (status < 0) {
                cg_settings_network_fini(&s.network);
                return status;
        }
        *ret = s.network;
        return 0;
}

void cg_settings_network_fini(struct cg_settings_network *net)
{
        free(net->allowed.v);
        free(net->denied.v);
        free(net->reasons);
        free(net->denied_addresses.v);
        free(net->unix_sockets.v);
        free(net->strip_response_headers.v);
        free(net->mitm_domains.v);
}
