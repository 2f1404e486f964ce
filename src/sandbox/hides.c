/* Where credentials usually lie. A table and the loop that adds it to a plan; runs in the caller. */
#include "sandbox/plan.h"

#include <limits.h>
#include <stdio.h>

#include "base/util.h"

/* Below the user's home. Folders where a tool keeps more than its credential are named by the credential's file. */
static const char *const in_home[] = {
        /* keys and password stores */
        ".ssh", ".gnupg", ".password-store", ".local/share/keyrings", ".local/share/kwalletd", ".pki", ".vault-token",
        ".config/sops", ".config/age", ".config/op", ".config/keybase", ".config/Bitwarden CLI",
        /* clouds and clusters */
        ".aws", ".azure", ".oci", ".config/gcloud", ".config/doctl", ".config/hcloud", ".config/rclone", ".config/fly",
        ".fly", ".boto", ".s3cfg", ".kube", ".docker", ".config/containers/auth.json",
        ".terraform.d/credentials.tfrc.json", ".terraformrc", ".databrickscfg", ".snowflake", ".snowsql",
        /* code forges and package registries */
        ".git-credentials", ".config/git/credentials", ".config/gh", ".config/glab-cli", ".config/hub", ".netrc",
        "_netrc", ".npmrc", ".yarnrc.yml", ".pypirc", ".config/pip/pip.conf", ".pip/pip.conf", ".cargo/credentials",
        ".cargo/credentials.toml", ".gem/credentials", ".m2/settings.xml", ".gradle/gradle.properties",
        ".config/composer/auth.json", ".composer/auth.json", ".config/NuGet",
        /* models and agents */
        ".config/anthropic", ".claude/.credentials.json", ".claude.json", ".codex/auth.json", ".config/openai",
        ".cache/huggingface/token", ".huggingface/token", ".kaggle", ".config/kaggle",
        /* databases */
        ".pgpass", ".my.cnf", ".mylogin.cnf", ".dbshell",
        /* browsers and mail: cookies are credentials */
        ".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware",
        ".config/microsoft-edge",
        /* what was typed, passwords included */
        ".bash_history", ".zsh_history", ".python_history", ".psql_history", ".mysql_history", ".node_repl_history",
        ".lesshst", ".viminfo", ".local/share/fish/fish_history",
};

/* Of the system. Most are out of an ordinary user's reach anyway; a sandbox that root starts still owns them. */
static const char *const in_system[] = {
        "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/security/opasswd", "/etc/sudoers",
        "/etc/sudoers.d", "/etc/ssh/ssh_host_rsa_key", "/etc/ssh/ssh_host_ecdsa_key", "/etc/ssh/ssh_host_ed25519_key",
        "/etc/ssh/ssh_host_dsa_key", "/etc/ssl/private", "/etc/pki/tls/private", "/etc/letsencrypt", "/etc/krb5.keytab",
        "/etc/NetworkManager/system-connections", "/etc/wireguard", "/etc/openvpn", "/etc/ppp", "/etc/ipsec.secrets",
        "/etc/kubernetes", "/etc/rancher", "/etc/docker/key.json", "/var/lib/kubelet", "/var/lib/docker",
        "/var/lib/containerd", "/var/lib/private", "/var/lib/sss/secrets", "/var/spool/cron", "/var/log/journal",
        "/var/log/auth.log", "/var/lib/systemd/random-seed", "/var/backups",
};

int cg_sandbox_add_default_hides(struct cg_sandbox *sb, const char *home, struct cg_err *err)
{
        char path[PATH_MAX];
        int e = 0;

        sb->credentials_from = sb->n_hides;
        for (size_t i = 0; e == 0 && home && i < CG_ARRAY_LEN(in_home); i++) {
                int n = snprintf(path, sizeof(path), "%s/%s", home, in_home[i]);

                if (n < 0 || (size_t)n >= sizeof(path))
                        return cg_fail(err, CG_E_LIMIT, "sandbox: the home folder's path is too long");
                e = cg_sandbox_add_hide(sb, path, err);
        }
        for (size_t i = 0; e == 0 && i < CG_ARRAY_LEN(in_system); i++)
                e = cg_sandbox_add_hide(sb, in_system[i], err);
        sb->credentials_to = sb->n_hides;
        return e;
}
