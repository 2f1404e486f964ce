/*
 * Connections of HTTP and the way of a request through them: Streamable HTTP of MCP at /mcp,
 * HTTP+SSE at /sse, and /health. Runs in the front of cellgate-mcp-http.
 *
 * libmicrohttpd calls cg_hf_access() for a request when its head has come, for each part of its
 * body, when that is whole, and again each time the connection is resumed. A request that waits is
 * suspended: then our own epoll reports that the client has gone.
 */
#include "mcp_http/exchange.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include "base/ceilings.h"
#include "base/json.h"
#include "config.h"

/* ---- routes */

static enum MHD_Result health(struct hf_exchange *x)
{
        char *text = NULL;
        int n = asprintf(&text, "{\"status\":\"ok\",\"version\":\"%s\",\"tier\":\"%s\",\"sessions\":%u}\n",
                         CG_VERSION, x->f->setup.tier, x->f->n_sessions);

        return n < 0 ? MHD_NO : cg_hf_respond_json(x, MHD_HTTP_OK, text, (size_t)n, NULL, NULL);
}

static enum MHD_Result metadata(struct hf_exchange *x)
{
        char *text = strdup(x->f->setup.metadata);

        return cg_hf_respond_json(x, MHD_HTTP_OK, text, cg_strlen(text), NULL, NULL);
}

static enum MHD_Result options(struct hf_exchange *x)
{
        struct MHD_Response *r = MHD_create_response_from_buffer(0, (void *)(uintptr_t) "",
                                                                 MHD_RESPMEM_PERSISTENT);

        if (!r)
                return MHD_NO;
        MHD_add_response_header(r, "Access-Control-Allow-Methods", "GET, POST, DELETE");
        MHD_add_response_header(
                r, "Access-Control-Allow-Headers",
                "Authorization, Content-Type, Last-Event-ID, Mcp-Method, Mcp-Name, " VERSION_HEADER
                ", " SESSION_HEADER);
        return cg_hf_respond(x, MHD_HTTP_NO_CONTENT, r);
}

/* In the order of the functions below. */
enum hf_route { NO_PATH, NO_METHOD, HEALTH, METADATA, OPTIONS, GET, DELETE, POST, SSE, MESSAGES };

static enum hf_route route_of(const struct hf_front *f, const char *url, const char *method)
{
        static const struct {
                const char *url, *method;
                enum hf_route route;
        } routes[] = { { "/mcp", "POST", POST },
                       { "/mcp", "GET", GET },
                       { "/mcp", "DELETE", DELETE },
                       { "/mcp", "OPTIONS", OPTIONS },
                       { "/health", "GET", HEALTH },
                       { "/health", "HEAD", HEALTH },
                       { CG_HF_METADATA_PLACE, "GET", METADATA },
                       { CG_HF_METADATA_PLACE, "OPTIONS", OPTIONS },
                       { "/sse", "GET", SSE },
                       { "/messages", "POST", MESSAGES } };
        enum hf_route found = NO_PATH;

        /* The path of the server's own URL follows, which a proxy may have chosen. */
        if (strncmp(url, CG_HF_METADATA_PLACE, strlen(CG_HF_METADATA_PLACE)) == 0)
                url = f->setup.metadata[0] ? CG_HF_METADATA_PLACE : "";
        for (size_t i = 0; i < CG_ARRAY_LEN(routes); i++) {
                if (strcmp(url, routes[i].url) != 0 || (routes[i].route >= SSE && !f->setup.sse))
                        continue;
                if (strcmp(method, routes[i].method) == 0)
                        return routes[i].route;
                found = NO_METHOD;
        }
        return found;
}

/* The request is allowed. */
static enum MHD_Result check_route(struct hf_exchange *x, enum hf_route route)
{
        const char *length = cg_hf_header(x, "Content-Length"), *type = cg_hf_header(x, "Content-Type");

        if (route == NO_PATH)
                return cg_hf_refuse(x, MHD_HTTP_NOT_FOUND, SERVER_ERROR, "there are only /mcp and /health");
        if (route == NO_METHOD)
                return cg_hf_refuse(x, MHD_HTTP_METHOD_NOT_ALLOWED, SERVER_ERROR,
                                    "there is no such method here");
        x->sse = route == MESSAGES;
        if (route != POST && route != MESSAGES)
                return MHD_YES;
        /* Pages can send other types to foreign servers without being asked. */
        if (!type || strncasecmp(type, "application/json", 16) != 0 ||
            (type[16] && !strchr("; \t", type[16])))
                return cg_hf_refuse(x, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, SERVER_ERROR,
                                    "Content-Type must be application/json");
        if (!cg_hf_accepts(x, "application/json"))
                return cg_hf_refuse(x, MHD_HTTP_NOT_ACCEPTABLE, SERVER_ERROR,
                                    "Accept must have application/json, and should have text/event-stream");
        if (length && strtoull(length, NULL, 10) > CG_MAX_MCP_MESSAGE)
                return cg_hf_refuse(x, MHD_HTTP_CONTENT_TOO_LARGE, CG_RPC_INVALID_REQUEST,
                                    "the body has more than 64 MiB");
        return MHD_YES;
}

static enum MHD_Result refuse_token(struct hf_exchange *x, int status, const char *why)
{
        if (status == MHD_HTTP_UNAUTHORIZED && *cg_hf_bearer(x->c))
                x->token_error = ", error=\"invalid_token\"";
        else if (status == MHD_HTTP_FORBIDDEN)
                x->token_error = ", error=\"insufficient_scope\"";
        return cg_hf_refuse(x, (unsigned)status, SERVER_ERROR, why);
}

/* The request waits for the verifier before its body is read. */
static enum MHD_Result ask_about_token(struct hf_exchange *x)
{
        struct cg_err err;

        x->check = ++x->f->last_request;
        if (x->f->n_checks >= HF_MAX_CHECKS ||
            cg_hf_tell_monitor(x->f, HF_CHECK, x->check, cg_hf_bearer(x->c), &err) < 0) {
                x->check = 0;
                return cg_hf_refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, SERVER_ERROR,
                                    "too many tokens are being checked: send the request again");
        }
        x->f->n_checks++;
        x->check_ms = cg_now_ms();
        cg_hf_suspend(x);
        return MHD_YES;
}

static void end_check(struct hf_exchange *x)
{
        x->f->n_checks -= x->check != 0;
        x->check = 0;
}

void cg_hf_checked(struct hf_front *f, const struct hf_msg *m)
{
        struct hf_conn *conn;

        LIST_FOREACH(conn, &f->conns, entry) {
                if (!conn->x || conn->x->check != m->session)
                        continue;
                conn->x->checked = *m;
                end_check(conn->x);
                cg_hf_wake(conn->x);
                return;
        }
}

static enum MHD_Result after_check(struct hf_exchange *x, enum hf_route route)
{
        struct hf_msg *m = &x->checked;

        m->type = 0;
        if (m->status)
                return refuse_token(x, m->status, m->why);
        cg_hf_grant_keep(x->f, cg_hf_bearer(x->c), m, &x->who);
        return check_route(x, route);
}

/* The head has come. */
static enum MHD_Result check_head(struct hf_exchange *x, const char *url, const char *method)
{
        enum hf_route route = route_of(x->f, url, method);
        const char *why = NULL;
        int status = cg_hf_guard(x->f, x->c, method, route == HEALTH || route == METADATA, &x->who,
                                 &x->origin, &why);

        if (status == HF_ASK)
                return ask_about_token(x);
        if (status == MHD_HTTP_UNAUTHORIZED && x->f->setup.metadata[0])
                return refuse_token(x, status, why);
        if (status)
                return cg_hf_refuse(x, (unsigned)status, SERVER_ERROR, why);
        return check_route(x, route);
}

static void release_body(struct hf_exchange *x)
{
        x->f->body_bytes -= x->body.len;
        cg_buf_fini(&x->body);
}

/*
 * A body that is too long is read up to a limit, so that the client gets the response.
 * The part of a body that cannot be whole any more is freed for other bodies: else all that come at
 * the same time would be refused.
 */
static enum MHD_Result add_body(struct hf_exchange *x, const char *data, size_t *size)
{
        bool whole = x->received == x->body.len;
        size_t n = *size;

        *size = 0;
        x->received += n;
        if (x->received > 2 * CG_MAX_MCP_MESSAGE)
                return MHD_NO;
        if (whole && x->f->body_bytes + n <= HF_MAX_BODIES && cg_buf_try_add(&x->body, data, n, NULL) == 0)
                x->f->body_bytes += n;
        else
                release_body(x);
        return MHD_YES;
}

enum MHD_Result cg_hf_access(void *data, struct MHD_Connection *c, const char *url, const char *method,
                             const char *version, const char *upload, size_t *size, void **state)
{
        static enum MHD_Result (*const handlers[])(struct hf_exchange *) = {
                [HEALTH] = health,      [METADATA] = metadata,        [OPTIONS] = options,
                [GET] = cg_hf_get,      [DELETE] = cg_hf_end_session, [POST] = cg_hf_post,
                [SSE] = cg_hf_open_sse, [MESSAGES] = cg_hf_post,
        };
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
        struct hf_exchange *x = *state;
        enum MHD_Result result;

        if (!x) {
                x = info && info->socket_context ? calloc(1, sizeof(*x)) : NULL;
                if (!x)
                        return MHD_NO;
                x->f = data;
                x->c = c;
                x->who.until_ms = INT64_MAX;
                x->conn = info->socket_context;
                x->conn->x = x;
                x->conn->busy = true;
                x->conn->n_requests++;
                cg_buf_init(&x->body, CG_MAX_MCP_MESSAGE + 1);
                *state = x;
                return check_head(x, url, method);
        }
        if (*size)
                return add_body(x, upload, size);
        if (x->conn->gone)
                return MHD_NO;
        if (x->checked.type)
                return after_check(x, route_of(x->f, url, method));
        if (x->stream)
                return cg_hf_proceed(x);
        result = handlers[route_of(x->f, url, method)](x);
        release_body(x);
        return result;
}

void cg_hf_completed(void *data, struct MHD_Connection *c, void **state, enum MHD_RequestTerminationCode how)
{
        struct hf_exchange *x = *state;

        if (!x)
                return;
        *state = NULL;
        x->conn->x = NULL;
        x->conn->busy = false;
        x->conn->since_ms = cg_now_ms();
        release_body(x);
        end_check(x);
        if (x->stream)
                cg_hf_session_leave(x->stream);
        free(x);
}

/* ---- connections */

static void on_hang_up(void *data, uint32_t events)
{
        struct hf_conn *conn = data;

        conn->gone = true;
        if (conn->x)
                cg_hf_wake(conn->x);
}

void cg_hf_connection(void *data, struct MHD_Connection *c, void **context,
                      enum MHD_ConnectionNotificationCode what)
{
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        struct epoll_event e = { .events = EPOLLRDHUP | EPOLLET };
        struct hf_conn *conn = *context;
        struct hf_front *f = data;

        if (what == MHD_CONNECTION_NOTIFY_CLOSED && conn) {
                epoll_ctl(f->epoll, EPOLL_CTL_DEL, conn->fd, NULL);
                LIST_REMOVE(conn, entry);
                f->n_conns--;
                free(conn);
                *context = NULL;
                return;
        }
        conn = what == MHD_CONNECTION_NOTIFY_STARTED && info ? calloc(1, sizeof(*conn)) : NULL;
        if (!conn)
                return;
        conn->fd = info->connect_fd;
        conn->since_ms = cg_now_ms();
        conn->watch = (struct hf_watch){ on_hang_up, conn };
        e.data.ptr = &conn->watch;
        epoll_ctl(f->epoll, EPOLL_CTL_ADD, conn->fd, &e);
        LIST_INSERT_HEAD(&f->conns, conn, entry);
        f->n_conns++;
        *context = conn;
}

void cg_hf_conns_tick(struct hf_front *f, int64_t now)
{
        static const char late[] =
                "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        struct hf_msg m = { .type = HF_CHECK,
                            .status = MHD_HTTP_SERVICE_UNAVAILABLE,
                            .why = "the token was not checked in time" };
        struct hf_conn *conn;

        LIST_FOREACH(conn, &f->conns, entry) {
                if (conn->x && conn->x->check && now - conn->x->check_ms >= HF_CHECK_MS) {
                        m.session = conn->x->check;
                        cg_hf_checked(f, &m);
                }
                /* libmicrohttpd may have read what came before the end, and wait for more. */
                if (conn->gone)
                        shutdown(conn->fd, SHUT_RDWR);
                if (conn->busy || now - conn->since_ms < (conn->n_requests ? HF_IDLE_MS : HF_HEAD_MS))
                        continue;
                if (!conn->n_requests && !f->tls)
                        send(conn->fd, late, sizeof(late) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
                shutdown(conn->fd, SHUT_RDWR); /* libmicrohttpd closes it then */
        }
}

void cg_hf_conns_end(struct hf_front *f)
{
        struct hf_conn *conn;

        LIST_FOREACH(conn, &f->conns, entry)
                on_hang_up(conn, 0);
}
