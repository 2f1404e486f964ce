/* src/jupyter/connection.c: connection files, good, bad and missing; binding. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/util.h"
#include "jupyter/connection.h"
#include "unit.h"

struct env {
        char dir[200], file[300];
        void *ctx;
};

static int set_up(void **state)
{
        struct env *e = calloc(1, sizeof(*e));

        strcpy(e->dir, "/tmp/cg-conn-XXXXXX");
        if (!mkdtemp(e->dir))
                return -1;
        snprintf(e->file, sizeof(e->file), "%s/kernel.json", e->dir);
        e->ctx = zmq_ctx_new();
        *state = e;
        return 0;
}

static int tear_down(void **state)
{
        struct env *e = *state;

        zmq_ctx_term(e->ctx);
        cg_remove_tree(e->dir, NULL);
        free(e);
        return 0;
}

static void write_file(const struct env *e, const char *text)
{
        FILE *f = fopen(e->file, "w");

        assert_non_null(f);
        fputs(text, f);
        fclose(f);
}

static void *router(const struct env *e)
{
        int zero = 0;
        void *s = zmq_socket(e->ctx, ZMQ_ROUTER);

        zmq_setsockopt(s, ZMQ_LINGER, &zero, sizeof(zero));
        return s;
}

TEST_WITH(files_that_are_refused, set_up, tear_down)
{
        static const struct {
                const char *text;
                int code;
                const char *why;
        } cases[] = {
                { "", CG_E_PARSE, "JSON" },
                { "[]", CG_E_PARSE, "object" },
                { "{\"transport\": \"pgm\"}", CG_E_UNSUPPORTED, "transport \"pgm\" is not supported" },
                { "{\"signature_scheme\": \"hmac-md5\"}", CG_E_UNSUPPORTED,
                  "signature_scheme \"hmac-md5\" is not supported" },
                { "{\"signature_scheme\": 5}", CG_E_PARSE, "string" },
                { "{\"ip\": \"*\"}", CG_E_UNSUPPORTED, "address" },
                { "{\"ip\": \"\"}", CG_E_UNSUPPORTED, "address" },
                { "{\"shell_port\": 70000}", CG_E_PARSE, "70000" },
                { "{\"shell_port\": -1}", CG_E_PARSE, "shell_port" },
                { "{\"shell_port\": \"1\"}", CG_E_PARSE, "\"shell_port\" must be an integer" },
                { "{\"key\": null}", CG_E_PARSE, "\"key\" must be a string" },
                { "{}", CG_E_PARSE, "\"key\" is missing" },
                { "{\"ip\": \"0.0.0.0\"}", CG_E_PARSE, "\"key\" is missing" },
                { "{\"transport\": \"ipc\", \"ip\": \"/tmp/x\"}", CG_E_PARSE, "\"key\" is missing" },
                { "{\"key\": \"\", \"ip\": \"0.0.0.0\"}", CG_E_INVAL, "anybody who can connect to 0.0.0.0" },
                { "{\"key\": \"\", \"transport\": \"ipc\", \"ip\": \"@abstract\"}", CG_E_INVAL,
                  "anybody who can connect to @abstract" },
                { "{\"key\": \" \\t\\n\", \"ip\": \"0.0.0.0\"}", CG_E_PARSE, "\"key\" has only blanks" },
                { "{\"key\": \" \"}", CG_E_PARSE, "\"key\" has only blanks" },
                { "{\"key\": \"\", \"ip\": \"::\"}", CG_E_INVAL, "loopback" },
                { "{\"key\": \"\", \"ip\": \"192.168.1.5\"}", CG_E_INVAL, "loopback" },
                { "{\"key\": \"\", \"ip\": \"kernel.example.org\"}", CG_E_INVAL, "loopback" },
                { "{\"key\": \"\", \"ip\": \"127.0.0.1.example.org\"}", CG_E_INVAL, "loopback" },
                { "{\"curve_publickey\": \"x\"}", CG_E_PARSE, "belong together" },
                { "{\"curve_publickey\": \"x\", \"curve_secretkey\": \"y\"}", CG_E_PARSE, "Z85" },
        };
        struct env *e = *state;

        for (size_t i = 0; i < CG_ARRAY_LEN(cases); i++) {
                struct cg_jconn c;
                struct cg_err err = { 0 };

                write_file(e, cases[i].text);
                assert_int_equal(cg_jconn_load(&c, e->file, &err), cases[i].code);
                if (!strstr(err.msg, cases[i].why))
                        fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].text, err.msg, cases[i].why);
                cg_jconn_fini(&c);
                assert_int_equal(access(e->file, F_OK), 0);
        }
}

TEST_WITH(empty_keys_that_are_allowed, set_up, tear_down)
{
#define Z "0123456789012345678901234567890123456789"
        static const char *const cases[] = {
                "{\"key\": \"\"}",
                "{\"key\": \"\", \"ip\": \"127.8.7.6\"}",
                "{\"key\": \"\", \"ip\": \"::1\"}",
                "{\"key\": \"\", \"ip\": \"localhost\"}",
                "{\"key\": \"\", \"transport\": \"ipc\", \"ip\": \"/tmp/x\"}",
                /* the pair of ZeroMQ's documents */
                "{\"key\": \"\", \"ip\": \"0.0.0.0\", \"curve_publickey\": \"Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID\", "
                "\"curve_secretkey\": \"D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs\"}",
        };
        struct env *e = *state;

        for (size_t i = 0; i < CG_ARRAY_LEN(cases); i++) {
                struct cg_jconn c;
                struct cg_err err = { 0 };

                write_file(e, cases[i]);
                if (cg_jconn_load(&c, e->file, &err) != 0)
                        fail_msg("%s", err.msg);
                cg_jconn_fini(&c);
        }
}

TEST_WITH(address_in_use, set_up, tear_down)
{
        struct env *e = *state;
        void *first = router(e), *second = router(e);
        struct cg_jconn c;
        struct cg_err err;

        assert_int_equal(cg_jconn_load(&c, e->file, &err), 0);
        assert_int_equal(cg_jconn_bind(&c, CG_JSHELL, first, 0, &err), 0);
        assert_int_equal(cg_jconn_bind(&c, CG_JSHELL, second, cg_now_ms() + 50, &err), CG_E_EXISTS);
        assert_non_null(strstr(err.msg, "in use"));
        zmq_close(first);
        /* ZeroMQ is still closing the first socket. */
        assert_int_equal(cg_jconn_bind(&c, CG_JSHELL, second, cg_now_ms() + 5000, &err), 0);
        cg_jconn_fini(&c);
        zmq_close(second);
}

TEST_WITH(ipc, set_up, tear_down)
{
        struct env *e = *state;
        void *first = router(e), *second = router(e), *third = router(e);
        struct cg_jconn c;
        struct stat st;
        struct cg_err err;
        char text[500], path[300];

        snprintf(text, sizeof(text),
                 "{\"transport\": \"ipc\", \"ip\": \"%s/k\", \"shell_port\": 1, \"key\": \"k\"}", e->dir);
        write_file(e, text);
        assert_int_equal(cg_jconn_load(&c, e->file, &err), 0);
        assert_int_equal(cg_jconn_bind(&c, CG_JSHELL, first, 0, &err), 0);
        /* 0: the next that is free */
        assert_int_equal(cg_jconn_bind(&c, CG_JIOPUB, second, 0, &err), 0);
        assert_int_equal(c.ports[CG_JIOPUB], 2);
        snprintf(path, sizeof(path), "%s/k-1", e->dir);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 077, 0);
        /* A living kernel's path is not taken from it. */
        assert_int_equal(cg_jconn_bind(&c, CG_JSHELL, third, 0, &err), CG_E_EXISTS);
        cg_jconn_fini(&c);
        zmq_close(first);
        zmq_close(second);
        zmq_close(third);
}
