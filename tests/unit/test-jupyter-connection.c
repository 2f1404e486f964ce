/* src/jupyter/connection.c: connection files, good, bad and missing; binding. */
#include <zmq.h>
#include "jupyter/connection.h"
#include "cases.h"

static void *ctx;

static int set_up(void **state)
{
        ctx = zmq_ctx_new();
        return enter_folder(state);
}

static int tear_down(void **state)
{
        zmq_ctx_term(ctx);
        return leave_folder(state);
}

static void *router(void)
{
        int zero = 0;
        void *s = zmq_socket(ctx, ZMQ_ROUTER);

        zmq_setsockopt(s, ZMQ_LINGER, &zero, sizeof(zero));
        return s;
}

TEST_WITH(files_that_are_refused, set_up, tear_down)
{
        EACH_CASE(k, "refused")
        {
                struct cg_jconn c;

                write_file(path_in("kernel.json"), k.in);
                FAILS(cg_case_code(k.out), k.third, cg_jconn_load(&c, path_in("kernel.json"), &err));
                cg_jconn_fini(&c);
                assert_int_equal(access(path_in("kernel.json"), F_OK), 0);
        }
}

TEST_WITH(empty_keys_that_are_allowed, set_up, tear_down)
{
        EACH_CASE(k, "empty keys")
        {
                struct cg_jconn c;

                write_file(path_in("kernel.json"), k.in);
                OK(cg_jconn_load(&c, path_in("kernel.json"), &err));
                cg_jconn_fini(&c);
        }
}

TEST_WITH(ipc, set_up, tear_down)
{
        void *first = router(), *second = router(), *third = router();
        struct cg_jconn c;
        struct stat st;
        char text[500], path[300];

        snprintf(text, sizeof(text),
                 "{\"transport\": \"ipc\", \"ip\": \"%s/k\", \"shell_port\": 1, \"key\": \"k\"}", test_dir);
        write_file(path_in("kernel.json"), text);
        OK(cg_jconn_load(&c, path_in("kernel.json"), &err));
        OK(cg_jconn_bind(&c, CG_JSHELL, first, 0, &err));
        /* 0: the next that is free */
        OK(cg_jconn_bind(&c, CG_JIOPUB, second, 0, &err));
        assert_int_equal(c.ports[CG_JIOPUB], 2);
        snprintf(path, sizeof(path), "%s/k-1", test_dir);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 077, 0);
        /* A living kernel's path is not taken from it. */
        FAILS(CG_E_EXISTS, "", cg_jconn_bind(&c, CG_JSHELL, third, 0, &err));
        cg_jconn_fini(&c);
        zmq_close(first);
        zmq_close(second);
        zmq_close(third);
}
