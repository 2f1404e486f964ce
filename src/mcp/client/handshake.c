/*
 * The handshake of an MCP client. The protocol has two eras: until 2025-11-25 a connection begins
 * with initialize ("legacy"); from 2026-07-28 on every request says all that the server must know
 * ("modern"), and server/discover says what the server can do.
 *
 * Which of them a server speaks is found out by server/discover. Modern: it answers, or with an
 * error that only modern servers have. Legacy: any other error, no answer in time, or it ends.
 */
#include "mcp/client/internal.h"

#include "base/text.h"
#include "config.h"
#include "mcp/ceilings.h"

/* Oldest first. The newest is offered, all are accepted. */
static const char *const versions[] = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25" };
#define NEWEST versions[CG_ARRAY_LEN(versions) - 1]

/* Errors of modern servers only. */
#define MISSING_CAPABILITY  (-32021)
#define UNSUPPORTED_VERSION (-32022)

/* ---- what is remembered */

static bool is_known_as_legacy(const struct cg_mcp_client *c)
{
        for (unsigned i = 0; c->o.eras && i < CG_ARRAY_LEN(c->o.eras->legacy) && i < c->o.eras->n; i++)
                if (c->o.eras->legacy[i] == c->def->digest)
                        return true;
        return false;
}

static void remember_legacy(struct cg_mcp_client *c)
{
        if (c->o.eras && c->def->era == CG_MCP_AUTO && !is_known_as_legacy(c))
                c->o.eras->legacy[c->o.eras->n++ % CG_ARRAY_LEN(c->o.eras->legacy)] = c->def->digest;
}

static void forget_legacy(struct cg_mcp_client *c)
{
        for (unsigned i = 0; c->o.eras && i < CG_ARRAY_LEN(c->o.eras->legacy) && i < c->o.eras->n; i++)
                if (c->o.eras->legacy[i] == c->def->digest)
                        c->o.eras->legacy[i] = 0;
        c->handshake.skip_probe = false;
}

/* ---- requests */

static void set_version(struct cg_mcp_client *c, const char *version, bool modern)
{
        c->modern = modern;
        if (c->t && c->t->ops->negotiated)
                c->t->ops->negotiated(c->t, version, modern);
}

static int send_initialize(struct cg_mcp_client *c, struct cg_err *err)
{
        struct cg_mcp_msg m = { .method = "initialize", .repeatable = true };
        cg_auto_buf struct cg_buf b = { .max = 1024 };

        set_version(c, NULL, false);
        m.id = c->handshake.init_id = ++c->last_id;
        c->handshake.probe_deadline_ms = 0;
        cg_buf_addf(&b,
                    "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"initialize\",\"params\":"
                    "{\"protocolVersion\":\"%s\",\"capabilities\":",
                    (unsigned long long)m.id, NEWEST);
        cg_mcp_add_capabilities(c, &b);
        cg_buf_adds(&b, ",\"clientInfo\":{\"name\":\"cellgate\",\"version\":\"" CG_VERSION "\"}}}\n");
        return cg_mcp_send(c, &m, &b, err);
}

/* server/discover was of no use. */
static void go_legacy(struct cg_mcp_client *c)
{
        struct cg_err err;

        c->handshake.probe_id = 0;
        if (send_initialize(c, &err) < 0 && err.code != CG_E_CLOSED)
                cg_mcp_client_start_failed(c, err.msg);
        cg_mcp_client_rearm(c);
}

/* Whatever is answered first decides: the answer to server/discover may still come. */
static void probe_expired(struct cg_mcp_client *c)
{
        uint64_t probe = c->handshake.probe_id;

        go_legacy(c);
        if (c->state == STARTING)
                c->handshake.probe_id = probe;
}

static int send_discover(struct cg_mcp_client *c, struct cg_err *err)
{
        struct cg_mcp_msg m = { .method = "server/discover", .repeatable = true };
        cg_auto_buf struct cg_buf b = { .max = 2048 }, meta = { .max = 1024 };

        set_version(c, CG_MCP_MODERN_VERSION, true);
        m.id = c->handshake.probe_id = ++c->last_id;
        cg_mcp_add_meta(c, &meta, true, 0);
        cg_buf_fail(&b, meta.failed);
        cg_buf_addf(&b, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"server/discover\",\"params\":{%s}}\n",
                    (unsigned long long)m.id, meta.failed ? "" : meta.data + 1);
        /* Over HTTP silence is an outage, and ends with the time for the start. */
        c->handshake.probe_expired = probe_expired;
        c->handshake.probe_deadline_ms = 0;
        if (c->def->kind == CG_MCP_STDIO && c->def->era == CG_MCP_AUTO)
                c->handshake.probe_deadline_ms = cg_now_ms() + CG_MCP_PROBE_MS;
        return cg_mcp_send(c, &m, &b, err);
}

int cg_mcp_begin_handshake(struct cg_mcp_client *c, struct cg_err *err)
{
        if (c->def->era == CG_MCP_LEGACY || c->sse ||
            (c->def->era == CG_MCP_AUTO && (c->handshake.skip_probe || is_known_as_legacy(c))))
                return send_initialize(c, err);
        return send_discover(c, err);
}

void cg_mcp_renew_session(struct cg_mcp_client *c)
{
        struct cg_err err;

        if (c->state != READY)
                return;
        cg_log(c->o.log, CG_LOG_INFO, "MCP server %s has forgotten the session: a new one is begun",
               c->def->name);
        /* A new session has requests of the same ids: an old answer would be one to them. */
        c->upper.questions->server_gone(c);
        c->state = STARTING;
        cg_mcp_lists_stale(c);
        c->handshake.init_timeout_ms = cg_mcp_client_start_ms(c, 0);
        c->handshake.init_deadline_ms = cg_now_ms() + c->handshake.init_timeout_ms;
        if (send_initialize(c, &err) < 0)
                cg_mcp_client_start_failed(c, err.msg);
        cg_mcp_client_rearm(c);
}

/* ---- the server is ready */

static void become_ready(struct cg_mcp_client *c, const char *version)
{
        cg_log(c->o.log, CG_LOG_DEBUG, "MCP server %s is ready, protocol %s", c->def->name, version);
        c->handshake.init_id = c->handshake.probe_id = 0;
        c->handshake.probe_deadline_ms = 0;
        c->state = READY;
        c->ready_at_ms = cg_now_ms();
        cg_mcp_client_rearm(c);
        cg_mcp_send_waiting(c);
}

/* ---- answers */

/* Bits of the capabilities that the server offers; @caps may be none. */
static void read_capabilities(struct cg_mcp_client *c, struct cg_slice caps)
{
        c->offered.offers = c->offered.announces = 0;
        for (size_t i = 0; i < CG_MCP_N_CAPABILITIES; i++) {
                struct cg_slice one = CG_SLICE_NONE, changes = CG_SLICE_NONE;

                if (!caps.p || !cg_json_find(caps, cg_mcp_capabilities[i].name, &one) ||
                    cg_slice_is(one, "null"))
                        continue;
                c->offered.offers |= cg_mcp_capabilities[i].offer;
                if (cg_json_find(one, "listChanged", &changes) && cg_slice_is(changes, "true"))
                        c->offered.announces |= cg_mcp_capabilities[i].offer;
        }
        c->offered.tools = c->offered.offers & CG_MCP_TOOLS;
        c->offered.known = true;
}

/* Whether the JSON array @list has the text @version. */
static bool has_version(struct cg_slice list, const char *version)
{
        struct cg_json_walk w;
        struct cg_slice v;
        bool found = false;
        int r = list.p ? cg_json_walk_init(&w, list, '[', NULL) : CG_JSON_END;

        while (r == 0 && (r = cg_json_walk_next(&w, NULL, &v, NULL)) == 0) {
                cg_auto_free char *text = NULL;

                found |= cg_json_strdup(v, &text, NULL) == 0 && strcmp(text, version) == 0;
        }
        return found && r == CG_JSON_END;
}

/* It cannot be legacy: the definition says so, or it has used an error of modern servers. */
static void modern_failed(struct cg_mcp_client *c, const char *why)
{
        char text[1200];

        snprintf(text, sizeof(text), "it does not answer server/discover of revision %s as it should: %s",
                 CG_MCP_MODERN_VERSION, why);
        cg_mcp_client_start_failed(c, text);
}

static void on_discover_error(struct cg_mcp_client *c, struct cg_slice error)
{
        struct cg_slice data = CG_SLICE_NONE, supported = CG_SLICE_NONE;
        int code = cg_mcp_error_code(error);
        struct cg_err err;
        char why[600];

        cg_mcp_error_text(error, why, sizeof(why));
        if (code == UNSUPPORTED_VERSION) {
                bool can = cg_json_find(error, "data", &data) &&
                           cg_json_find(data, "supported", &supported) &&
                           has_version(supported, CG_MCP_MODERN_VERSION);

                if (can && !c->handshake.probed_again) {
                        c->handshake.probed_again = true;
                        if (send_discover(c, &err) < 0)
                                modern_failed(c, err.msg);
                        return;
                }
                for (size_t i = 0; i < CG_ARRAY_LEN(versions) && c->def->era == CG_MCP_AUTO; i++) {
                        if (has_version(supported, versions[i])) {
                                go_legacy(c);
                                return;
                        }
                }
        }
        if (c->def->era == CG_MCP_MODERN || code == UNSUPPORTED_VERSION || code == CG_MCP_HEADER_MISMATCH ||
            code == MISSING_CAPABILITY)
                modern_failed(c, why);
        else
                go_legacy(c);
}

void cg_mcp_on_discover(struct cg_mcp_client *c, const struct cg_rpc *m)
{
        struct cg_slice found = CG_SLICE_NONE, caps = CG_SLICE_NONE;

        if (m->kind == CG_RPC_RESULT && cg_json_find(m->result, "supportedVersions", &found) &&
            has_version(found, CG_MCP_MODERN_VERSION)) {
                cg_json_find(m->result, "capabilities", &caps);
                read_capabilities(c, caps);
                set_version(c, CG_MCP_MODERN_VERSION, true);
                c->subscription.since_ms = cg_now_ms() - CG_MCP_LISTEN_MS;
                cg_mcp_listen(c);
                become_ready(c, CG_MCP_MODERN_VERSION);
        } else if (c->handshake.init_id) { /* too late: the answer to initialize decides */
                c->handshake.probe_id = 0;
        } else if (m->kind == CG_RPC_ERROR) {
                on_discover_error(c, m->error);
        } else if (c->def->era == CG_MCP_MODERN) {
                modern_failed(c, "its answer does not list that revision");
        } else {
                go_legacy(c);
        }
}

static int read_initialize(struct cg_mcp_client *c, const struct cg_rpc *m, const char **version,
                           struct cg_err *err)
{
        struct cg_slice offered = CG_SLICE_NONE, caps = CG_SLICE_NONE;
        cg_auto_free char *text = NULL;
        size_t v = 0;
        char why[600];

        if (m->kind == CG_RPC_ERROR) {
                cg_mcp_error_text(m->error, why, sizeof(why));
                return cg_fail(err, CG_E_PROTO, "it answered initialize with an error: %s", why);
        }
        if (cg_json_member(m->result, "protocolVersion", &offered, err) < 0 ||
            cg_json_member(m->result, "capabilities", &caps, err) < 0)
                return cg_err_prefix(err, "its answer to initialize is broken");
        if (cg_json_strdup(offered, &text, NULL) < 0)
                return cg_fail(err, CG_E_PROTO, "its answer to initialize has no protocolVersion");
        while (v < CG_ARRAY_LEN(versions) && strcmp(versions[v], text) != 0)
                v++;
        if (v == CG_ARRAY_LEN(versions)) {
                cg_auto_buf struct cg_buf shown = { .max = 1024 };

                cg_text_render_as(&shown, text, strlen(text), 200, CG_TEXT_LINE);
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "it speaks version \"%s\" of the protocol; %s to %s are known here",
                               cg_buf_str(&shown), versions[0], NEWEST);
        }
        read_capabilities(c, caps);
        *version = versions[v];
        return 0;
}

void cg_mcp_on_initialize(struct cg_mcp_client *c, const struct cg_rpc *m)
{
        const char *version;
        struct cg_err err;

        c->handshake.init_id = 0;
        if (read_initialize(c, m, &version, &err) < 0) {
                forget_legacy(c);
                /* A modern server after all, that was not probed, or did not answer in time. */
                if (m->kind == CG_RPC_ERROR && cg_mcp_error_code(m->error) == UNSUPPORTED_VERSION &&
                    c->def->era == CG_MCP_AUTO && !c->sse && !c->handshake.probed_again) {
                        c->handshake.probed_again = true;
                        if (send_discover(c, &err) == 0) {
                                cg_mcp_client_rearm(c);
                                return;
                        }
                }
                cg_mcp_client_start_failed(c, err.msg);
                return;
        }
        remember_legacy(c);
        set_version(c, version, false);
        cg_mcp_send_notification(c, "notifications/initialized", NULL);
        become_ready(c, version);
}

/* Over HTTP only. */
void cg_mcp_on_handshake_failed(struct cg_mcp_client *c, uint64_t id, const struct cg_transport_failure *f)
{
        bool refused = f->status == 400 || f->status == 404 || f->status == 405;
        struct cg_slice body = cg_json_trim(f->body);
        struct cg_rpc m;
        bool is_error = body.len && cg_rpc_parse(body, &m, NULL) == 0 && m.kind == CG_RPC_ERROR;
        int code = is_error ? cg_mcp_error_code(m.error) : 0;
        char why[1200];

        if (id == c->handshake.probe_id) {
                if (f->status == 404 && code == CG_RPC_METHOD_NOT_FOUND) { /* modern, without this method */
                        c->offered.tools = true;
                        c->offered.known = false;
                        become_ready(c, CG_MCP_MODERN_VERSION);
                } else if (is_error && f->status >= 400 && f->status < 500 && f->status != 401 &&
                           f->status != 403) {
                        on_discover_error(c, m.error);
                } else if (refused && c->def->era == CG_MCP_AUTO) {
                        go_legacy(c);
                } else {
                        cg_mcp_client_start_failed(c, f->text);
                }
                return;
        }
        c->handshake.init_id = 0;
        if (refused && c->def->kind == CG_MCP_HTTP && !c->sse && !is_error) {
                cg_log(c->o.log, CG_LOG_INFO, "MCP server %s: %s; trying HTTP+SSE", c->def->name, f->text);
                c->sse = true;
                c->upper.restart(c);
                return;
        }
        if (!is_error) {
                cg_mcp_client_start_failed(c, f->text);
                return;
        }
        cg_mcp_error_text(m.error, why, sizeof(why) - 100);
        snprintf(why + strlen(why), sizeof(why) - strlen(why), " (HTTP %d)", f->status);
        cg_mcp_client_start_failed(c, why);
}
