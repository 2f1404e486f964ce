/* The verifier of cellgate-mcp-http, with a clock, an issuer and keys of the test's own. */
#include "mcp/oauth/oauth.h"
#include "mcp_http/front.h"
#include "mcp_http/jwt.h"
#include "unit.h"

#define DAY_MS 86400000

/* Shared with the verifier, which is a process of its own. */
static struct world {
        _Atomic int64_t ms;
        _Atomic bool reachable;
} * world;

int64_t __wrap_cg_now_ms(void);
int __wrap_cg_oauth_issuer_keys(const struct cg_oauth_server *s, struct cg_oauth_response *ret,
                                struct cg_err *err);

int64_t __wrap_cg_now_ms(void)
{
        return world->ms;
}

int __wrap_cg_oauth_issuer_keys(const struct cg_oauth_server *s, struct cg_oauth_response *ret,
                                struct cg_err *err)
{
        return world->reachable ? 0 : cg_fail(err, CG_E_SYS, "not reachable");
}

int cg_jwks_parse(const char *text, size_t len, struct cg_jwks **ret, struct cg_err *err)
{
        *ret = calloc(1, 1);
        return *ret ? 0 : cg_fail(err, CG_E_NOMEM, "key set");
}

struct cg_jwks *cg_jwks_free(struct cg_jwks *k)
{
        free(k);
        return NULL;
}

int cg_jwt_verify(const struct cg_jwks *k, const char *token, struct cg_buf *claims, struct cg_err *err)
{
        assert_non_null(k);
        return 0;
}

int cg_jwt_claims(const char *text, size_t len, const struct cg_jwt_rules *rules,
                  unsigned char owner[CG_HF_OWNER], int64_t *valid_s, struct cg_err *err)
{
        *valid_s = DAY_MS / 1000;
        return 0;
}

static pid_t start(int *control)
{
        static struct hf_verifier_setup setup = { .issuer = "https://issuer.example.org" };
        int pair[2];
        pid_t pid;

        world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(world != MAP_FAILED);
        world->ms = DAY_MS;
        world->reachable = true;
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
                _exit(dup2(pair[1], CG_HF_CONTROL) < 0 ? 1 : cg_hf_verifier());
        close(pair[1]);
        *control = pair[0];
        assert_int_equal(send(*control, &setup, sizeof(setup), MSG_NOSIGNAL), (ssize_t)sizeof(setup));
        return pid;
}

/* The status of HTTP that a token gets; 0: it is accepted. */
static int check(int control)
{
        struct hf_ask ask = { .type = HF_CHECK, .session = 1, .token = "token" };
        struct hf_msg answer;

        assert_int_equal(send(control, &ask, cg_hf_ask_size(&ask), MSG_NOSIGNAL),
                         (ssize_t)cg_hf_ask_size(&ask));
        assert_int_equal(recv(control, &answer, sizeof(answer), 0), (ssize_t)sizeof(answer));
        return answer.status;
}

static void end(pid_t pid, int control)
{
        int status;

        close(control);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

TEST(test_keys_of_an_issuer_that_cannot_be_reached)
{
        int control;
        pid_t pid = start(&control);

        assert_int_equal(check(control), 0);
        world->reachable = false;
        world->ms += DAY_MS / 2;
        assert_int_equal(check(control), 0);
        end(pid, control);
}

/* Nobody has sent a token for a day: no fetch has failed meanwhile. */
TEST(test_keys_that_are_too_old)
{
        int control;
        pid_t pid = start(&control);

        assert_int_equal(check(control), 0);
        world->reachable = false;
        world->ms += DAY_MS + 1;
        assert_int_equal(check(control), MHD_HTTP_SERVICE_UNAVAILABLE);
        world->reachable = true;
        world->ms += DAY_MS;
        assert_int_equal(check(control), 0);
        end(pid, control);
}
