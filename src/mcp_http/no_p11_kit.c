/*
 * Stubs of p11-kit for cellgate-mcp-http in a wheel. Debian's libgnutls.a refers to it, and there
 * is no static library of it. cellgate uses no PKCS #11 token; the stubs find none.
 */
#define STUB(name) \
        void *name(void); \
        void *name(void) \
        { \
                return 0; \
        }

STUB(p11_kit_config_option)
STUB(p11_kit_message)
STUB(p11_kit_module_finalize)
STUB(p11_kit_module_get_flags)
STUB(p11_kit_module_get_name)
STUB(p11_kit_module_load)
STUB(p11_kit_module_release)
STUB(p11_kit_modules_load)
STUB(p11_kit_pin_file_callback)
STUB(p11_kit_pin_get_length)
STUB(p11_kit_pin_get_value)
STUB(p11_kit_pin_new_for_string)
STUB(p11_kit_pin_register_callback)
STUB(p11_kit_pin_request)
STUB(p11_kit_pin_unref)
STUB(p11_kit_pin_unregister_callback)
STUB(p11_kit_space_strdup)
STUB(p11_kit_space_strlen)
STUB(p11_kit_strerror)
STUB(p11_kit_uri_format)
STUB(p11_kit_uri_free)
STUB(p11_kit_uri_get_attribute)
STUB(p11_kit_uri_get_attributes)
STUB(p11_kit_uri_get_module_info)
STUB(p11_kit_uri_get_pin_source)
STUB(p11_kit_uri_get_pin_value)
STUB(p11_kit_uri_get_token_info)
STUB(p11_kit_uri_match_module_info)
STUB(p11_kit_uri_match_token_info)
STUB(p11_kit_uri_new)
STUB(p11_kit_uri_parse)
STUB(p11_kit_uri_set_attribute)
