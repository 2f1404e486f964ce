/* The table of names.h. docs/names.md says who obeys each name; tests/docs compares the two. */
#include "sandbox/names/names.h"

#include "base/util.h"

#define ROW(name, what) \
        { \
                name, what \
        }
#define W(name)  ROW(name, CG_NAME_WRITE)
#define H(name)  ROW(name, CG_NAME_HIDE)
#define B(name)  ROW(name, CG_NAME_BELOW)
#define WH(name) ROW(name, CG_NAME_WRITE | CG_NAME_HIDE)
#define HB(name) ROW(name, CG_NAME_HIDE | CG_NAME_BELOW)

/* Names with a dot in front, then the others. */
static const struct cg_name table[] = {
        /* shells, and what a login or a desktop starts */
        W(".bashrc"), W(".bash_profile"), W(".bash_login"), W(".bash_logout"), W(".bash_aliases"),
        W(".bash_completion"), W(".bash.bashrc"), W(".profile"), W(".zshenv"), W(".zprofile"), W(".zshrc"),
        W(".zlogin"), W(".zlogout"), W(".zsh_plugins.txt"), W(".oh-my-zsh"), W(".p10k.zsh"), W(".config/zsh"),
        W(".kshrc"), W(".mkshrc"), W(".shrc"), W(".shinit"), W(".cshrc"), W(".tcshrc"), W(".login"),
        W(".logout"), W(".inputrc"), W(".config/fish"), W(".config/nushell"), W(".config/elvish"),
        W(".elvish"), W(".xonshrc"), W(".config/xonsh"), W(".config/powershell"), W(".config/starship.toml"),
        W(".fzf.bash"), W(".fzf.zsh"), W(".config/sheldon"), W(".envrc"), W(".config/direnv"),
        W(".mise.toml"), W(".config/mise"), W(".tmux.conf"), W(".config/tmux"), W(".screenrc"), W(".xinitrc"),
        W(".xprofile"), W(".xsession"), W(".xsessionrc"), W(".xserverrc"), W(".pam_environment"),
        W(".config/environment.d"), W(".config/systemd"), W(".local/share/systemd"), W(".config/autostart"),
        W(".config/autostart-scripts"), W(".config/plasma-workspace"), W(".config/i3"), W(".i3"),
        W(".config/sway"), W(".config/hypr"), W(".local/share/applications"), W(".local/share/dbus-1"),
        W(".local/bin"), W(".cargo/bin"), W(".cargo/env"), W(".nvm"), W(".pyenv"), W(".rbenv"), W(".asdf"),
        W(".sdkman"), W(".ripgreprc"), W(".curlrc"), W(".wgetrc"), W(".crontab"), W(".forward"),
        W(".procmailrc"), W(".bashrc.d"), W(".bash_it"), W(".oh-my-bash"), W(".zshrc.d"), W(".zprezto"),
        W(".zpreztorc"), W(".zim/init.zsh"), W(".zimrc"), W(".zinit"), W(".antigen"), W(".antidote"),
        W(".zcompdump*"), W(".local/share/fish/vendor_*"), W(".local/share/bash-completion"),
        W(".envrc.local"), W(".envrc.private"), W(".direnv"), W(".direnvrc"), W(".autoenv*"),
        W(".mise.*.toml"), W(".mise"), W(".config/mise.toml"), W(".miserc.toml"), W(".shadowenv.d"),
        W(".config/zellij"), W(".byobu"), W(".rtx.toml"), W(".opam/opam-init"), W(".nix-profile"),
        W(".config/nix"), W(".volta/bin"), W(".bun/bin"), W(".deno/bin"), W(".deno/env"), W(".pixi/bin"),
        W(".rye/shims"), W(".rye/env"), W(".ghcup/bin"), W(".ghcup/env"), W(".cabal/bin"), W(".krew/bin"),
        W(".rvm"), W(".nodenv"), W(".goenv"), W(".jenv"), W(".local/share/mise"), W(".local/share/pnpm"),
        W(".lesskey"), W(".less"), W(".lessfilter"), W(".config/lesskey"), W(".rhosts"), W(".shosts"),
        W(".k5login"), W(".xbindkeysrc"), W(".config/awesome"), W(".config/qtile"), W(".xmonad"),
        W(".config/xmonad"), W(".config/bspwm"), W(".config/sxhkd"), W(".config/openbox"), W(".fluxbox"),
        W(".config/niri"), W(".config/river"), W(".config/labwc"), W(".config/waybar"), W(".config/polybar"),
        W(".config/kitty"), W(".config/alacritty"), W(".config/wezterm"), W(".wezterm.lua"),
        W(".config/ghostty"), W(".config/foot"), W(".local/share/gnome-shell"), W(".local/share/nautilus*"),
        /* git; what it obeys in a repository is in cg_git_part() */
        W(".gitconfig"), W(".gitmodules"), W(".config/git"), W(".githooks"), W(".husky"),
        W(".pre-commit-config.yaml"), W(".pre-commit-config.yml"), W(".overcommit.yml"), W(".hg/hgrc"),
        W(".hgrc"), W(".jj/repo"), W(".config/jj"), W(".git-hooks"), W(".gitk"), W(".tigrc"),
        W(".config/tig"), W(".config/lazygit"), W(".cache/pre-commit"), W(".cache/prek"), W(".lefthook*"),
        W(".config/lefthook*"), W(".hkrc.pkl"), W(".config/hk.pkl"), W(".config/hk.local.pkl"),
        W(".config/hk"), W(".lintstagedrc*"), W(".rusty-hook.toml"), W(".cargo-husky"), W(".jjconfig.toml"),
        W(".jj/workspace-config.toml"), W(".pijul/config"), W(".config/pijul"), W(".bazaar"),
        W(".config/breezy"), W(".p4config"), W(".p4enviro"), W(".config/gh/config.yml"),
        W(".local/share/gh/extensions"), W(".config/glab-cli/config.yml"), W(".config/glab-cli/aliases.yml"),
        W(".hg/hgrc-not-shared"), W(".hg/sharedpath"), W(".sl/config"), W(".repo"), W(".fossil-settings"),
        W(".subversion"), H(".subversion/auth"), W(".gbp.conf"),
        /* editors */
        W(".vscode"), W(".vscode-server"), W(".config/Code"), W(".config/VSCodium"), W(".devcontainer"),
        W(".devcontainer.json"), W(".idea"), W(".config/JetBrains"), W(".fleet"), W(".zed"), W(".config/zed"),
        W(".vs"), W(".helix"), W(".config/helix"), W(".vimrc"), W(".gvimrc"), W(".vim"), W(".exrc"),
        W(".nexrc"), W(".nvimrc"), W(".nvim.lua"), W(".lvimrc"), W(".lazy.lua"), W(".bsp"),
        W(".lsp/config.edn"), W(".hie-bios"), W(".luarc.json*"), W(".ruby-lsp"), W(".elixir_ls"),
        W(".rust-analyzer.toml"), W(".neoconf.json"), W(".nlsp-settings"), W(".phpactor.json"),
        W(".phpactor.yml"), W(".lapce"), W(".tabnine"), W(".local.vimrc"), W(".config/nvim"),
        W(".local/share/nvim"), W(".emacs"), W(".emacs.d"), W(".config/emacs"), W(".dir-locals.el"),
        W(".dir-locals-2.el"), W(".spacemacs"), W(".doom.d"), W(".nanorc"), W(".kakrc"), W(".config/kak"),
        W(".config/sublime-text"), W(".vscode-oss"), W(".vscode-insiders"), W(".vscode-server-insiders"),
        W(".windsurf-server"), W(".config/Windsurf"), W(".config/vim"), W(".SpaceVim.d"), W(".cache/nvim"),
        W(".config/lvim"), W(".kateproject*"), W(".externalToolBuilders"), W(".config/micro"),
        /* agents */
        W(".mcp.json"), W(".claude/commands"), W(".claude/agents"), W(".claude/skills"), W(".claude/hooks"),
        W(".claude/plugins"), W(".claude/settings*.json"), W(".claude/output-styles"), WH(".claude.json"),
        W(".claude-plugin"), WH(".claude/.credentials*"), W(".cursor/mcp.json"), W(".cursor/hooks*"),
        W(".cursor/cli*.json"), W(".cursor/commands"), W(".cursor/environment.json"), W(".cursor/extensions"),
        W(".cursor/worktrees.json"), W(".cursor-server"), WH(".config/cursor"), WH(".config/Cursor"),
        WH(".gemini"), W(".codex/config.toml"), W(".codex/hooks*"), W(".codex/prompts"), W(".codex/rules"),
        WH(".codex/auth.json"), W(".opencode"), W(".config/opencode"), WH(".local/share/opencode"),
        W(".crush.json"), WH(".config/crush"), W(".aider*.yml"), W(".continue"), W(".continuerc.json"),
        W(".windsurf"), WH(".codeium"), W(".roo"), W(".kilocode"), W(".kiro"), W(".amazonq"), WH(".qwen"),
        WH(".factory"), W(".junie"), W(".trae"), WH(".augment"), WH(".config/goose"), W(".goose"), W(".amp"),
        WH(".config/amp"), WH(".config/github-copilot"), WH(".copilot"), WH(".config/anthropic"),
        WH(".config/openai"), H(".cache/huggingface/token"), H(".huggingface/token"), H(".kaggle"),
        H(".config/kaggle"), W(".claude/local"), W(".claude/shell-snapshots"), W(".claude/session-env"),
        W(".claude/statusline*"), W(".local/share/claude"), W(".cursor/agents"), W(".cursor/skills"),
        W(".cursor/plugins"), W(".codex/skills"), W(".codex/plugins"), WH(".codex/.env"), W(".agents/skills"),
        W(".github/hooks"), W(".clinerules/hooks"), WH(".cline"), WH(".pi"), WH(".openhands"),
        WH(".config/gptme"), WH(".vibe"), WH(".kimi"), WH(".iflow"), WH(".grok"), WH(".qoder"),
        WH(".codebuddy"), WH(".antigravity"), W(".srt-settings.json"), W(".local/share/cellgate"),
        W(".cache/cellgate"), WH(".local/state/cellgate"), WH(".local/share/crush"),
        H(".local/share/amazon-q"), H(".modal.toml"), H(".config/io.datasette.llm"),
        H(".cache/huggingface/stored_tokens"),
        /* package managers, build programs, interpreters and debuggers */
        WH(".npmrc"), WH(".yarnrc"), WH(".yarnrc.yml"), W(".yarn/plugins"), W(".yarn/releases"),
        W(".pdm-python"), W(".yarn/sdks"), W(".mill-opts"), W(".mill-jvm-opts"), W(".docker/cli-plugins"),
        W(".config/bat"), W(".pnpmfile.cjs"), W(".pnpmfile.mjs"), WH(".config/pnpm"), WH(".bunfig.toml"),
        W(".corepack.env"), H(".node_repl_history"), WH(".pypirc"), WH(".pip/pip.conf"),
        WH(".config/pip/pip.conf"), WH(".condarc"), W(".pythonrc*"), W(".pythonstartup*"), W(".pdbrc*"),
        W(".ipython"), W(".config/matplotlib/matplotlibrc"), WH(".jupyter"), W(".cargo/config"),
        W(".cargo/config.toml"), WH(".cargo/credentials"), WH(".cargo/credentials.toml"), W(".bundle"),
        W(".gemrc"), WH(".gem/credentials"), W(".irbrc"), W(".pryrc"), W(".Rprofile"), WH(".Renviron"),
        W(".mvn"), WH(".m2/settings*.xml"), W(".gradle/init.*"), WH(".gradle/gradle.properties"),
        W(".sbtopts"), W(".sbt"), W(".bazelrc"), W(".bazeliskrc"), W(".buckconfig*"), W(".gdbinit"),
        W(".gdbearlyinit"), W(".lldbinit*"), W(".ghci"), W(".ocamlinit"), W(".guile"), W(".perldb"),
        W(".julia/config"), W(".iex.exs"), W(".erlang"), W(".octaverc"), W(".psqlrc"), W(".sqliterc"),
        WH(".config/composer/auth.json"), WH(".composer/auth.json"), WH(".nuget"), WH(".config/NuGet"),
        W(".rustup"), W(".config/go"), W(".mavenrc"), W(".antrc"), W(".ant"), W(".jvmopts"), WH(".lein"),
        W(".local/lib/python3*"), W(".local/share/jupyter/kernels"), WH(".local/share/jupyter/runtime"),
        W(".local/share/jupyter/lab*"), W(".local/share/pipx"), W(".makepkg.conf"), WH(".hex"),
        WH(".pub-cache/credentials.json"), H(".config/dart"), H(".ivy2/.credentials"), H(".config/cachix"),
        WH(".config/pypoetry"), H(".histfile"), H(".zhistory"), H(".local/share/atuin"),
        H(".local/share/zsh"), H(".ipython/profile_default/history.sqlite"), H(".mongodb"),
        H(".duckdb_history"), H(".config/stripe"), H(".config/scw"), H(".config/openstack"), H(".aliyun"),
        H(".config/sentry"), H(".sentryclirc"), H(".config/syncthing"), H(".local/state/syncthing"),
        H(".ansible/galaxy_token"), H(".transifexrc"),
        /* keys and password stores */
        WH(".ssh"), WH(".gnupg"), H(".password-store"), H(".local/share/keyrings"),
        H(".local/share/kwalletd"), H(".pki"), H(".vault-token"), H(".config/sops"), H(".config/age"),
        H(".config/op"), H(".config/keybase"), H(".config/Bitwarden CLI"), H(".config/keepassxc"),
        H(".Xauthority"), H(".ICEauthority"), HB(".authinfo*"), HB(".netrc"), H(".bitcoin"), H(".litecoin"),
        H(".dogecoin"), H(".ethereum"), H(".electrum"), H(".config/solana"), H(".monero"), H(".bitmonero"),
        H(".config/Exodus"), H(".config/Ledger Live"), H(".near-credentials"), H(".foundry/keystores"),
        B(".env"), B(".env.*"), B(".secrets"),
        /* clouds and clusters */
        W(".aws/config"), W(".aws/credentials"), H(".aws"), H(".azure"), H(".oci"), H(".config/gcloud"),
        H(".config/doctl"), H(".config/hcloud"), H(".config/rclone"), H(".config/fly"), H(".fly"), H(".boto"),
        H(".s3cfg"), W(".kube/config"), H(".kube"), W(".docker/config.json"), H(".docker"),
        H(".config/containers/auth.json"), H(".terraform.d/credentials.tfrc.json"), WH(".terraformrc"),
        H(".databrickscfg"), H(".snowflake"), H(".snowsql"), H(".tsh"), H(".config/ngrok"), H(".ngrok2"),
        H(".wrangler"), H(".config/.wrangler"), H(".cloudflared"), H(".netlify"), H(".config/netlify"),
        H(".vercel"), H(".local/share/com.vercel.cli"), H(".config/configstore"), H(".supabase"),
        H(".railway"), H(".config/heroku"), H(".linode-cli"), H(".config/linode-cli"),
        H(".pulumi/credentials.json"), H(".config/pulumi"), H(".bluemix"), H(".config/argocd"),
        H(".config/helm/registry"), H(".tailscale"), H(".config/tailscale"),
        /* forges, databases, mail, browsers */
        HB(".git-credentials"), H(".config/git/credentials"), H(".config/gh"), H(".config/glab-cli"),
        H(".config/hub"), H(".config/tea"), HB(".pgpass"), H(".my.cnf"), H(".mylogin.cnf"), H(".dbshell"),
        H(".config/DBeaverData"), H(".local/share/DBeaverData"), H(".msmtprc"), H(".config/msmtp"),
        H(".fetchmailrc"), H(".mbsyncrc"), H(".offlineimaprc"), H(".mozilla"), H(".thunderbird"),
        H(".config/google-chrome"), H(".config/chromium"), H(".config/BraveSoftware"),
        H(".config/microsoft-edge"), H(".config/vivaldi"), H(".config/opera"), H(".config/Slack"),
        H(".config/discord"), H(".config/Signal"), H(".local/share/TelegramDesktop"), H(".config/weechat"),
        H(".config/hexchat"), H(".config/remmina"), H(".local/share/remmina"), H(".config/filezilla"),
        H(".smbcredentials"), H(".davfs2"), H(".config/rustic"), H(".config/borg"),
        /* histories, which may contain passwords */
        H(".bash_history"), H(".zsh_history"), H(".python_history"), H(".psql_history"), H(".mysql_history"),
        H(".sqlite_history"), H(".rediscli_history"), H(".irb_history"), H(".lesshst"), H(".viminfo"),
        H(".local/share/fish/fish_history"),
        /* names without a dot in front */
        W("mise.toml"), W("mise.*.toml"), W("mise/config*.toml"), W("mise/conf.d"), W("lefthook.*"),
        W("lefthook-local.*"), W("prek.toml"), W("hk.pkl"), W("hk.local.pkl"), W("lint-staged.config.*"),
        W("captainhook.json"), W("grumphp.yml*"), W("rusty-hook.toml"), W("_darcs/prefs"),
        W("*.code-workspace"), W("hie.yaml"), W("rust-analyzer.toml"), W("*.sublime-project"), W("_vimrc"),
        W("mcp.json"), W("opencode.json*"), W("crush.json"), W("gptme.toml"), W("renv/activate.R"),
        W("bunfig.toml"), W("pip.conf"), W("jupyter_*_config.*"), HB("*.kdbx"), HB("_netrc"), HB("wallet.dat")
};

/* The rows from the last comment on. */
#define PLAIN 30

const struct cg_name *cg_names(size_t *n)
{
        *n = CG_ARRAY_LEN(table);
        return table;
}

const struct cg_name *cg_names_plain(size_t *n)
{
        *n = PLAIN;
        return table + CG_ARRAY_LEN(table) - PLAIN;
}
