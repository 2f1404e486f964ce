/*
 * libgcc's static unwinder, which libzmq brings into a wheel's cellgate-cli, refers to a function
 * that glibc has from 2.35 on. No exception of libzmq is caught there: cellgate-jupyter, which uses
 * it, is static and has glibc's own.
 */
int _dl_find_object(void *address, void *ret);
int _dl_find_object(void *address, void *ret)
{
        return -1;
}
