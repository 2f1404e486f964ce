/* The connection file. Runs in `cellgate jupyter`. */
#include "jupyter/connection.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <zmq.h>
#include "base/fd.h"
#include "base/host.h"
#include "base/json.h"
#include "base/text.h"

#define MAX_FILE  65536u
#define RETRY_MS  10
#define KEY_BYTES 24 /* of a new signature key */
/* A vanished peer, such as with a cable pulled out, is noticed after idle + count * interval s. */
#define KEEPALIVE_IDLE_S     60
#define KEEPALIVE_INTERVAL_S 10
#define KEEPALIVE_COUNT      6
/* Clients that connect at once: some hundred notebooks and consoles may come back together. */
#define BACKLOG   128
#define CURVE_KEY 40 /* Z85 */

static const char *const keys[CG_JCHANNELS] = { "shell_port", "iopub_port", "stdin_port", "control_port",
                                                "hb_port" };

const char *cg_jchannel_key(enum cg_jchannel channel)
{
        return keys[channel];
}

/* ------------------------------------------------------------------ reading */

/*
 * Signatures are what authenticates a client. A file without a key is more often one that lost it
 * than one that was meant to have none.
 */
static int check_key(const struct cg_jconn *c, struct cg_err *err)
{
        struct cg_host h;

        if (!c->key || (*c->key && !c->key[strspn(c->key, " \t\r\n\v\f")]))
                return cg_fail(
                        err, CG_E_PARSE,
                        "\"key\" %s: without it anybody who can connect could run code; put a long random "
                        "string there, or remove the file, and one with a key is made",
                        c->key ? "has only blanks" : "is missing");
        /* A socket that is no file ("@name") has no owner and no mode. */
        if (*c->key || (c->ipc && *c->ip != '@') || c->curve_public ||
            (cg_host_parse(c->ip, strlen(c->ip), &h, NULL) == 0 && cg_host_is_this_machine(&h)))
                return 0;
        return cg_fail(
                err, CG_E_INVAL,
                "\"key\" is empty, so that anybody who can connect to %s could run code: put a long random string "
                "there, or use a loopback address, the transport \"ipc\", or CURVE keys",
                c->ip);
}

static int read_members(struct cg_jconn *c, struct cg_err *err)
{
        const char *transport, *scheme;
        char public[CURVE_KEY + 1];
        int64_t port;

        if (cg_json_str(c->file, "transport", "tcp", &transport, err) < 0 ||
            cg_json_str(c->file, "ip", "127.0.0.1", &c->ip, err) < 0)
                return CG_E_PARSE;
        c->ipc = strcmp(transport, "ipc") == 0;
        if (!c->ipc && strcmp(transport, "tcp") != 0)
                return cg_fail(err, CG_E_UNSUPPORTED, "transport \"%s\" is not supported: tcp and ipc are",
                               transport);
        if (!*c->ip || strchr(c->ip, '*'))
                return cg_fail(err, CG_E_UNSUPPORTED, "ip \"%s\": one address is needed, such as 127.0.0.1",
                               c->ip);
        for (int i = 0; i < CG_JCHANNELS; i++) {
                if (cg_json_int(c->file, keys[i], 0, &port, err) < 0)
                        return CG_E_PARSE;
                if (port < 0 || port > 65535)
                        return cg_fail(err, CG_E_PARSE, "%s %lld is not a port", keys[i], (long long)port);
                c->ports[i] = (int)port;
        }
        if (cg_json_str(c->file, "key", NULL, &c->key, err) < 0 ||
            cg_json_str(c->file, "signature_scheme", "hmac-sha256", &scheme, err) < 0 ||
            cg_json_str(c->file, "curve_publickey", NULL, &c->curve_public, err) < 0 ||
            cg_json_str(c->file, "curve_secretkey", NULL, &c->curve_secret, err) < 0)
                return CG_E_PARSE;
        if (strcmp(scheme, "hmac-sha256") != 0)
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "signature_scheme \"%s\" is not supported: hmac-sha256 is", scheme);
        if (!c->curve_public != !c->curve_secret)
                return cg_fail(err, CG_E_PARSE,
                               "curve_publickey and curve_secretkey belong together: one is missing");
        if (c->curve_public && (strlen(c->curve_public) != CURVE_KEY || strlen(c->curve_secret) != CURVE_KEY))
                return cg_fail(err, CG_E_PARSE,
                               "curve_publickey and curve_secretkey must be %d characters of Z85", CURVE_KEY);
        if (c->curve_public &&
            (zmq_curve_public(public, c->curve_secret) < 0 || strcmp(public, c->curve_public) != 0))
                return cg_fail(err, CG_E_PARSE,
                               "curve_publickey is not that of curve_secretkey: nobody could connect");
        return check_key(c, err);
}

static int read_file(struct cg_jconn *c, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        char key[2 * KEY_BYTES + 1];
        struct stat st;
        size_t len;
        int r = cg_read_file(c->path, MAX_FILE, &text, &len, err);

        if (r == 0) {
                c->exposed = stat(c->path, &st) == 0 && ((st.st_mode & 066) || st.st_uid != geteuid());
                return cg_json_object(text, len, c->path, &c->file, err);
        }
        if (err->sys_errno != ENOENT)
                return r;
        c->made = c->changed = true;
        if (cg_random_hex(key, KEY_BYTES, err) < 0)
                return -1;
        c->file = json_pack("{s:s, s:s, s:s, s:s}", "transport", "tcp", "ip", "127.0.0.1", "key", key,
                            "signature_scheme", "hmac-sha256");
        explicit_bzero(key, sizeof(key));
        return cg_made(c->file, "connection file", err);
}

int cg_jconn_load(struct cg_jconn *c, const char *path, struct cg_err *err)
{
        struct cg_err local = { 0 };
        int r;

        err = err ?: &local;
        *c = (struct cg_jconn){ .path = strdup(path) };
        if (!c->path)
                return cg_fail(err, CG_E_NOMEM, "connection file");
        r = read_file(c, err);
        if (r < 0)
                return r;
        if (read_members(c, err) < 0)
                return cg_err_prefix(err, "%s", path);
        return 0;
}

void cg_jconn_release(struct cg_jconn *c)
{
        char path[128];

        for (int i = 0; i < CG_JCHANNELS; i++) {
                if (c->ipc && c->bound[i] &&
                    snprintf(path, sizeof(path), "%s-%d", c->ip, c->ports[i]) < (int)sizeof(path))
                        unlink(path);
                c->bound[i] = false;
        }
}

void cg_jconn_fini(struct cg_jconn *c)
{
        if (c->made && !c->changed && c->path) /* changed: it was never written */
                unlink(c->path);
        json_decref(c->file);
        free(c->path);
        *c = (struct cg_jconn){ 0 };
}

/* ------------------------------------------------------------------ binding */

static int set_options(const struct cg_jconn *c, void *sock, struct cg_err *err)
{
        int one = 1, idle = KEEPALIVE_IDLE_S, interval = KEEPALIVE_INTERVAL_S, count = KEEPALIVE_COUNT;

        /*
         * Keepalive, and no ZMTP heartbeats: libzmq does not read from a peer whose queue is full,
         * so a client that sleeps over its output would count as dead and lose it.
         */
        zmq_setsockopt(sock, ZMQ_TCP_KEEPALIVE, &one, sizeof(one));
        zmq_setsockopt(sock, ZMQ_TCP_KEEPALIVE_IDLE, &idle, sizeof(idle));
        zmq_setsockopt(sock, ZMQ_TCP_KEEPALIVE_INTVL, &interval, sizeof(interval));
        zmq_setsockopt(sock, ZMQ_TCP_KEEPALIVE_CNT, &count, sizeof(count));
        if (!c->ipc && strchr(c->ip, ':'))
                zmq_setsockopt(sock, ZMQ_IPV6, &one, sizeof(one));
        if (!c->curve_public)
                return 0;
        if (zmq_setsockopt(sock, ZMQ_CURVE_SERVER, &one, sizeof(one)) < 0 ||
            zmq_setsockopt(sock, ZMQ_CURVE_PUBLICKEY, c->curve_public, CURVE_KEY) < 0 ||
            zmq_setsockopt(sock, ZMQ_CURVE_SECRETKEY, c->curve_secret, CURVE_KEY) < 0)
                return cg_fail(err, CG_E_UNSUPPORTED, "%s: curve keys: %s", c->path,
                               zmq_strerror(zmq_errno()));
        return 0;
}

/*
 * A listening socket of our own where the address is a number. libzmq would ask the kernel for all
 * network interfaces before each of its five binds, which takes longer than all the rest.
 */
static int listen_tcp(const struct cg_jconn *c, int port, int *ret)
{
        struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
        struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
        bool is_v4 = inet_pton(AF_INET, c->ip, &v4.sin_addr) == 1,
             is_v6 = inet_pton(AF_INET6, c->ip, &v6.sin6_addr) == 1;
        cg_auto_fd int fd = -1;
        int one = 1;

        if (!is_v4 && !is_v6)
                return 0; /* a name: libzmq looks it up */
        fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0)
                return errno;
        if (bind(fd, is_v4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6,
                 is_v4 ? sizeof(v4) : sizeof(v6)) < 0 ||
            listen(fd, BACKLOG) < 0)
                return errno;
        *ret = cg_steal_fd(&fd);
        return 0;
}

/* 0 or errno */
static int bind_now(const struct cg_jconn *c, int port, void *sock, const char *address)
{
        cg_auto_fd int fd = -1;
        struct cg_err err;
        mode_t old;
        int r;

        if (c->ipc) {
                /* libzmq would take the path away from a kernel that listens on it. */
                if (cg_connect_unix_now(address + strlen("ipc://"), &fd, &err) == 0)
                        return EADDRINUSE;
                /*
                 * The mask makes sockets that are files private. Processes that are started later
                 * must not inherit it.
                 */
                old = umask(077);
                r = zmq_bind(sock, address) < 0 ? zmq_errno() : 0;
                umask(old);
                return r;
        }
        r = listen_tcp(c, port, &fd);
        if (r != 0)
                return r;
        if (zmq_setsockopt(sock, ZMQ_USE_FD, &fd, sizeof(fd)) < 0 || zmq_bind(sock, address) < 0)
                return zmq_errno();
        (void)cg_steal_fd(&fd); /* libzmq's now */
        return 0;
}

/* Sockets of ipc are files: IP-1 to IP-5, or the first numbers that are free. */
static int free_ipc_number(struct cg_jconn *c, enum cg_jchannel channel, struct cg_err *err)
{
        for (int n = 1; n < 1000; n++) {
                char path[128];
                bool used = false;

                for (int i = 0; i < CG_JCHANNELS; i++)
                        used = used || c->ports[i] == n;
                if (snprintf(path, sizeof(path), "%s-%d", c->ip, n) >= (int)sizeof(path))
                        return cg_fail(err, CG_E_LIMIT, "%s: \"ip\" is too long for a socket's path",
                                       c->path);
                if (used || access(path, F_OK) == 0)
                        continue;
                c->ports[channel] = n;
                c->changed = true;
                return 0;
        }
        return cg_fail(err, CG_E_LIMIT, "%s: no free number for a socket beside %s", c->path, c->ip);
}

int cg_jconn_bind(struct cg_jconn *c, enum cg_jchannel channel, void *sock, int64_t end_ms,
                  struct cg_err *err)
{
        bool is_v6 = !c->ipc && strchr(c->ip, ':');
        char address[256], bound[256], *colon;
        size_t size = sizeof(bound);
        int n, r;

        if (c->ipc && !c->ports[channel] && free_ipc_number(c, channel, err) < 0)
                return -1;
        if (set_options(c, sock, err) < 0)
                return -1;
        if (c->ipc)
                n = snprintf(address, sizeof(address), "ipc://%s-%d", c->ip, c->ports[channel]);
        else if (c->ports[channel])
                n = snprintf(address, sizeof(address), is_v6 ? "tcp://[%s]:%d" : "tcp://%s:%d", c->ip,
                             c->ports[channel]);
        else
                n = snprintf(address, sizeof(address), is_v6 ? "tcp://[%s]:*" : "tcp://%s:*", c->ip);
        if (n < 0 || (size_t)n >= sizeof(address))
                return cg_fail(err, CG_E_LIMIT, "%s: the address of %s is too long", c->path, keys[channel]);

        while ((r = bind_now(c, c->ports[channel], sock, address)) == EADDRINUSE) {
                /* No event reports it when another process gives the address up. */
                cg_pause_ms(RETRY_MS);
                if (cg_now_ms() >= end_ms)
                        return cg_fail(err, CG_E_EXISTS,
                                       "%s: %s is in use: another kernel has this connection file", c->path,
                                       address);
        }
        if (r)
                return cg_fail(err, CG_E_SYS, "%s: cannot listen at %s: %s", c->path, address,
                               zmq_strerror(r));
        c->bound[channel] = true;
        if (c->ports[channel])
                return 0;
        if (zmq_getsockopt(sock, ZMQ_LAST_ENDPOINT, bound, &size) < 0 || !(colon = strrchr(bound, ':')))
                return cg_fail(err, CG_E_SYS, "%s: no port for %s", c->path, keys[channel]);
        c->ports[channel] = atoi(colon + 1);
        c->changed = true;
        return 0;
}

/* ------------------------------------------------------------------ writing */

int cg_jconn_save(struct cg_jconn *c, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        int r = 0;

        if (!c->changed)
                return 0;
        for (int i = 0; i < CG_JCHANNELS; i++)
                r |= json_object_set_new(c->file, keys[i], json_integer(c->ports[i]));
        text = json_dumps(c->file, JSON_INDENT(2));
        if (r < 0 || !text)
                return cg_fail(err, CG_E_NOMEM, "connection file");
        if (cg_write_atomically(c->path, text, strlen(text), 0600, err) < 0)
                return cg_err_prefix(err, "connection file");
        c->changed = false;
        return 0;
}
