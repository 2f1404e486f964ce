/*
 * SOCKS 5 from a sandbox: messages are parsed whole or not at all, and name one host in
 * its canonical spelling.
 */
#include "sandbox/egress/socks.h"
#include "fuzz.h"

static void request(const uint8_t *p, size_t len)
{
        struct cg_socks_request r, again;
        struct cg_err err = { .msg = "" };
        struct cg_host h;
        size_t used, same;
        int e = cg_socks_request(p, len, &used, &r, &err);

        if (e != 0) {
                must(e == CG_SOCKS_MORE ? len < CG_SOCKS_MAX : err.msg[0] != '\0');
                return;
        }
        must(used > 0 && used <= len);
        if (r.code != CG_SOCKS_OK) {
                must(err.msg[0]);
                return;
        }
        must(r.port != 0 && cg_host_parse(r.host.text, strlen(r.host.text), &h, NULL) == 0 &&
             strcmp(h.text, r.host.text) == 0);
        /* Bytes after the message change nothing. */
        must(cg_socks_request(p, used, &same, &again, NULL) == 0 && same == used &&
             strcmp(again.host.text, r.host.text) == 0);
        must(used == 1 || cg_socks_request(p, used - 1, &same, &again, NULL) == CG_SOCKS_MORE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        uint8_t *exact = malloc(size ? size : 1);
        enum cg_socks_method m;
        size_t used;

        memcpy(exact, data, size);
        if (cg_socks_greeting(exact, size, &used, &m, NULL) == 0)
                must(used <= size && used >= 2);
        if (cg_socks_password(exact, size, &used, NULL) == 0)
                must(used <= size && used >= 3);
        request(exact, size);
        if (size) {
                cg_auto_buf struct cg_buf b;

                cg_buf_init(&b, 4096);
                exact[size - 1] = '\0';
                cg_socks_ssh_refusal((const char *)exact, &b);
                must(cg_buf_end(&b, NULL) == 0);
        }
        free(exact);
        return 0;
}
