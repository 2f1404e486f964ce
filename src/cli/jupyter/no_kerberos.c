/*
 * Stubs of Kerberos for cellgate-run. Debian's libzmq.a refers to it, and there is no static
 * library of it. cellgate never uses this authentication; the stubs refuse it. docs/jupyter.md says
 * why the program is static.
 */
#define REFUSE 0xd0000u /* GSS_S_FAILURE */

#define STUB(name) \
        unsigned name(void); \
        unsigned name(void) \
        { \
                return REFUSE; \
        }

STUB(gss_accept_sec_context)
STUB(gss_acquire_cred)
STUB(gss_delete_sec_context)
STUB(gss_display_name)
STUB(gss_import_name)
STUB(gss_init_sec_context)
STUB(gss_release_buffer)
STUB(gss_release_cred)
STUB(gss_release_name)
STUB(gss_unwrap)
STUB(gss_wrap)

extern const void *const GSS_C_NT_HOSTBASED_SERVICE, *const GSS_C_NT_USER_NAME;
const void *const GSS_C_NT_HOSTBASED_SERVICE = 0, *const GSS_C_NT_USER_NAME = 0;

/* libzmq starts its multicast transport with every context: it reads /etc/protocols. Unused. */
int __wrap_pgm_init(void *err);
int __wrap_pgm_shutdown(void);

int __wrap_pgm_init(void *err)
{
        return 1;
}

int __wrap_pgm_shutdown(void)
{
        return 1;
}
