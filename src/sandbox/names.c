/* See names.h. docs/names.md has the same table; tests/docs compares the two. */
#include "sandbox/names.h"

#include <fnmatch.h>
#include <limits.h>
#include <string.h>
#include <strings.h>

#include "base/util.h"

#define W CG_NAME_WRITE
#define H CG_NAME_HIDE
#define B CG_NAME_BELOW

/* Sorted by what obeys them. */
static const struct cg_name table[] = {
        /* shells, and what a login or a desktop starts */
        { ".bashrc", "bash", W },
        { ".bash_profile", "bash", W },
        { ".bash_login", "bash", W },
        { ".bash_logout", "bash", W },
        { ".bash_aliases", "bash", W },
        { ".bash_completion", "bash", W },
        { ".bash.bashrc", "bash", W },
        { ".profile", "shells", W },
        { ".zshenv", "zsh", W },
        { ".zprofile", "zsh", W },
        { ".zshrc", "zsh", W },
        { ".zlogin", "zsh", W },
        { ".zlogout", "zsh", W },
        { ".zsh_plugins.txt", "zsh", W },
        { ".oh-my-zsh", "zsh", W },
        { ".p10k.zsh", "zsh", W },
        { ".config/zsh", "zsh", W },
        { ".kshrc", "ksh", W },
        { ".mkshrc", "mksh", W },
        { ".shrc", "sh", W },
        { ".shinit", "sh", W },
        { ".cshrc", "csh", W },
        { ".tcshrc", "tcsh", W },
        { ".login", "csh", W },
        { ".logout", "csh", W },
        { ".inputrc", "readline", W },
        { ".config/fish", "fish", W },
        { ".config/nushell", "nushell", W },
        { ".config/elvish", "elvish", W },
        { ".elvish", "elvish", W },
        { ".xonshrc", "xonsh", W },
        { ".config/xonsh", "xonsh", W },
        { ".config/powershell", "PowerShell", W },
        { ".config/starship.toml", "starship", W },
        { ".fzf.bash", "fzf", W },
        { ".fzf.zsh", "fzf", W },
        { ".config/sheldon", "sheldon", W },
        { ".envrc", "direnv", W },
        { ".config/direnv", "direnv", W },
        { ".mise.toml", "mise", W },
        { "mise.toml", "mise", W },
        { ".config/mise", "mise", W },
        { ".tmux.conf", "tmux", W },
        { ".config/tmux", "tmux", W },
        { ".screenrc", "screen", W },
        { ".xinitrc", "X", W },
        { ".xprofile", "X", W },
        { ".xsession", "X", W },
        { ".xsessionrc", "X", W },
        { ".xserverrc", "X", W },
        { ".pam_environment", "login", W },
        { ".config/environment.d", "systemd", W },
        { ".config/systemd", "systemd", W },
        { ".local/share/systemd", "systemd", W },
        { ".config/autostart", "desktops", W },
        { ".config/autostart-scripts", "desktops", W },
        { ".config/plasma-workspace", "desktops", W },
        { ".config/i3", "i3", W },
        { ".i3", "i3", W },
        { ".config/sway", "sway", W },
        { ".config/hypr", "Hyprland", W },
        { ".local/share/applications", "desktops", W },
        { ".local/share/dbus-1", "D-Bus", W },
        { ".local/bin", "shells", W },
        { ".cargo/bin", "shells", W },
        { ".cargo/env", "shells", W },
        { ".nvm", "shells", W },
        { ".pyenv", "shells", W },
        { ".rbenv", "shells", W },
        { ".asdf", "shells", W },
        { ".sdkman", "shells", W },
        { ".ripgreprc", "ripgrep", W },
        { ".curlrc", "curl", W },
        { ".wgetrc", "wget", W },
        { ".crontab", "cron", W },
        { ".forward", "mail", W },
        { ".procmailrc", "mail", W },
        { ".bashrc.d", "bash", W },
        { ".bash_it", "bash", W },
        { ".oh-my-bash", "bash", W },
        { ".zshrc.d", "zsh", W },
        { ".zprezto", "zsh", W },
        { ".zpreztorc", "zsh", W },
        { ".zim/init.zsh", "zsh", W },
        { ".zimrc", "zsh", W },
        { ".zinit", "zsh", W },
        { ".antigen", "zsh", W },
        { ".antidote", "zsh", W },
        { ".zcompdump*", "zsh", W },
        { ".local/share/fish/vendor_*", "fish", W },
        { ".local/share/bash-completion", "bash", W },
        { ".envrc.local", "direnv", W },
        { ".envrc.private", "direnv", W },
        { ".direnv", "direnv", W },
        { ".autoenv*", "autoenv", W },
        { ".mise.*.toml", "mise", W },
        { "mise.*.toml", "mise", W },
        { ".mise", "mise", W },
        { ".config/mise.toml", "mise", W },
        { ".rtx.toml", "mise", W },
        { ".opam/opam-init", "opam", W },
        { ".nix-profile", "Nix", W },
        { ".config/nix", "Nix", W },
        { ".volta/bin", "shells", W },
        { ".bun/bin", "shells", W },
        { ".deno/bin", "shells", W },
        { ".deno/env", "shells", W },
        { ".pixi/bin", "shells", W },
        { ".rye/shims", "shells", W },
        { ".rye/env", "shells", W },
        { ".ghcup/bin", "shells", W },
        { ".ghcup/env", "shells", W },
        { ".cabal/bin", "shells", W },
        { ".krew/bin", "shells", W },
        { ".rvm", "shells", W },
        { ".nodenv", "shells", W },
        { ".goenv", "shells", W },
        { ".jenv", "shells", W },
        { ".local/share/mise", "shells", W },
        { ".local/share/pnpm", "shells", W },
        { ".lesskey", "less", W },
        { ".less", "less", W },
        { ".lessfilter", "less", W },
        { ".config/lesskey", "less", W },
        { ".rhosts", "login", W },
        { ".shosts", "login", W },
        { ".k5login", "login", W },
        { ".xbindkeysrc", "X", W },
        { ".config/awesome", "awesome", W },
        { ".config/qtile", "Qtile", W },
        { ".xmonad", "xmonad", W },
        { ".config/xmonad", "xmonad", W },
        { ".config/bspwm", "bspwm", W },
        { ".config/sxhkd", "sxhkd", W },
        { ".config/openbox", "Openbox", W },
        { ".fluxbox", "Fluxbox", W },
        { ".config/niri", "niri", W },
        { ".config/river", "river", W },
        { ".config/labwc", "labwc", W },
        { ".config/waybar", "Waybar", W },
        { ".config/polybar", "Polybar", W },
        { ".config/kitty", "kitty", W },
        { ".config/alacritty", "Alacritty", W },
        { ".config/wezterm", "WezTerm", W },
        { ".wezterm.lua", "WezTerm", W },
        { ".config/ghostty", "Ghostty", W },
        { ".config/foot", "foot", W },
        { ".local/share/gnome-shell", "GNOME", W },
        { ".local/share/nautilus*", "GNOME", W },
        /* git; what it obeys in a repository is in cg_git_part() */
        { ".gitconfig", "git", W },
        { ".gitmodules", "git", W },
        { ".config/git", "git", W },
        { ".githooks", "git", W },
        { ".husky", "husky", W },
        { ".pre-commit-config.yaml", "pre-commit", W },
        { ".pre-commit-config.yml", "pre-commit", W },
        { ".overcommit.yml", "overcommit", W },
        { "lefthook.yml", "lefthook", W },
        { ".lefthook.yml", "lefthook", W },
        { "lefthook-local.yml", "lefthook", W },
        { ".lefthook-local.yml", "lefthook", W },
        { ".lefthook", "lefthook", W },
        { ".hg/hgrc", "Mercurial", W },
        { ".hgrc", "Mercurial", W },
        { ".jj/repo", "Jujutsu", W },
        { ".config/jj", "Jujutsu", W },
        { ".git-hooks", "git", W },
        { ".gitk", "git", W },
        { ".tigrc", "tig", W },
        { ".config/tig", "tig", W },
        { ".config/lazygit", "lazygit", W },
        { ".cache/pre-commit", "pre-commit", W },
        { ".cache/prek", "pre-commit", W },
        { ".hg/hgrc-not-shared", "Mercurial", W },
        { ".hg/sharedpath", "Mercurial", W },
        { ".sl/config", "Sapling", W },
        { ".repo", "repo", W },
        { "_darcs/prefs", "Darcs", W },
        { ".fossil-settings", "Fossil", W },
        { ".subversion", "Subversion", W },
        { ".subversion/auth", "Subversion", H },
        { ".gbp.conf", "git-buildpackage", W },
        /* editors */
        { ".vscode", "VS Code", W },
        { "*.code-workspace", "VS Code", W },
        { ".vscode-server", "VS Code", W },
        { ".config/Code", "VS Code", W },
        { ".config/VSCodium", "VSCodium", W },
        { ".devcontainer", "VS Code", W },
        { ".devcontainer.json", "VS Code", W },
        { ".idea", "JetBrains", W },
        { ".config/JetBrains", "JetBrains", W },
        { ".fleet", "Fleet", W },
        { ".zed", "Zed", W },
        { ".config/zed", "Zed", W },
        { ".vs", "Visual Studio", W },
        { ".helix", "Helix", W },
        { ".config/helix", "Helix", W },
        { ".vimrc", "vim", W },
        { ".gvimrc", "vim", W },
        { ".vim", "vim", W },
        { ".exrc", "vi", W },
        { ".nexrc", "vi", W },
        { ".nvimrc", "Neovim", W },
        { ".nvim.lua", "Neovim", W },
        { ".lvimrc", "vim", W },
        { ".lazy.lua", "Neovim", W },
        { ".local.vimrc", "vim", W },
        { ".config/nvim", "Neovim", W },
        { ".local/share/nvim", "Neovim", W },
        { ".emacs", "Emacs", W },
        { ".emacs.d", "Emacs", W },
        { ".config/emacs", "Emacs", W },
        { ".dir-locals.el", "Emacs", W },
        { ".dir-locals-2.el", "Emacs", W },
        { ".spacemacs", "Emacs", W },
        { ".doom.d", "Emacs", W },
        { ".nanorc", "nano", W },
        { ".kakrc", "Kakoune", W },
        { ".config/kak", "Kakoune", W },
        { ".config/sublime-text", "Sublime Text", W },
        { ".vscode-oss", "VS Code", W },
        { ".vscode-insiders", "VS Code", W },
        { ".vscode-server-insiders", "VS Code", W },
        { ".windsurf-server", "Windsurf", W },
        { ".config/Windsurf", "Windsurf", W },
        { ".config/vim", "vim", W },
        { "_vimrc", "vim", W },
        { ".SpaceVim.d", "vim", W },
        { ".cache/nvim", "Neovim", W },
        { ".config/lvim", "Neovim", W },
        { ".kateproject*", "Kate", W },
        { ".externalToolBuilders", "Eclipse", W },
        { ".config/micro", "micro", W },
        /* agents */
        { ".mcp.json", "agents", W },
        { "mcp.json", "agents", W },
        { ".claude/commands", "Claude Code", W },
        { ".claude/agents", "Claude Code", W },
        { ".claude/skills", "Claude Code", W },
        { ".claude/hooks", "Claude Code", W },
        { ".claude/plugins", "Claude Code", W },
        { ".claude/settings*.json", "Claude Code", W },
        { ".claude/output-styles", "Claude Code", W },
        { ".claude.json", "Claude Code", W | H },
        { ".claude-plugin", "Claude Code", W },
        { ".claude/.credentials*", "Claude Code", W | H },
        { ".cursor/mcp.json", "Cursor", W },
        { ".cursor/hooks*", "Cursor", W },
        { ".cursor/cli*.json", "Cursor", W },
        { ".cursor/commands", "Cursor", W },
        { ".cursor/environment.json", "Cursor", W },
        { ".cursor/extensions", "Cursor", W },
        { ".cursor/worktrees.json", "Cursor", W },
        { ".cursor-server", "Cursor", W },
        { ".config/cursor", "Cursor", W | H },
        { ".config/Cursor", "Cursor", W | H },
        { ".gemini", "Gemini CLI", W | H },
        { ".codex/config.toml", "Codex", W },
        { ".codex/hooks*", "Codex", W },
        { ".codex/prompts", "Codex", W },
        { ".codex/rules", "Codex", W },
        { ".codex/auth.json", "Codex", W | H },
        { ".opencode", "opencode", W },
        { "opencode.json*", "opencode", W },
        { ".config/opencode", "opencode", W },
        { ".local/share/opencode", "opencode", W | H },
        { ".crush.json", "Crush", W },
        { "crush.json", "Crush", W },
        { ".config/crush", "Crush", W | H },
        { ".aider*.yml", "aider", W },
        { ".continue", "Continue", W },
        { ".continuerc.json", "Continue", W },
        { ".windsurf", "Windsurf", W },
        { ".codeium", "Windsurf", W | H },
        { ".roo", "Roo Code", W },
        { ".kilocode", "Kilo Code", W },
        { ".kiro", "Kiro", W },
        { ".amazonq", "Amazon Q", W },
        { ".qwen", "Qwen Code", W | H },
        { ".factory", "Factory", W | H },
        { ".junie", "Junie", W },
        { ".trae", "Trae", W },
        { ".augment", "Augment", W | H },
        { ".config/goose", "goose", W | H },
        { ".goose", "goose", W },
        { ".amp", "Amp", W },
        { ".config/amp", "Amp", W | H },
        { ".config/github-copilot", "Copilot", W | H },
        { ".copilot", "Copilot", W | H },
        { ".config/anthropic", "Anthropic", W | H },
        { ".config/openai", "OpenAI", W | H },
        { ".cache/huggingface/token", "Hugging Face", H },
        { ".huggingface/token", "Hugging Face", H },
        { ".kaggle", "Kaggle", H },
        { ".config/kaggle", "Kaggle", H },
        { ".claude/local", "Claude Code", W },
        { ".claude/shell-snapshots", "Claude Code", W },
        { ".claude/session-env", "Claude Code", W },
        { ".claude/statusline*", "Claude Code", W },
        { ".local/share/claude", "Claude Code", W },
        { ".cursor/agents", "Cursor", W },
        { ".cursor/skills", "Cursor", W },
        { ".cursor/plugins", "Cursor", W },
        { ".codex/skills", "Codex", W },
        { ".codex/plugins", "Codex", W },
        { ".codex/.env", "Codex", W | H },
        { ".agents/skills", "agents", W },
        { ".github/hooks", "Copilot", W },
        { ".clinerules/hooks", "Cline", W },
        { ".cline", "Cline", W | H },
        { ".pi", "pi", W | H },
        { ".openhands", "OpenHands", W | H },
        { "gptme.toml", "gptme", W },
        { ".config/gptme", "gptme", W | H },
        { ".vibe", "Mistral Vibe", W | H },
        { ".kimi", "Kimi", W | H },
        { ".iflow", "iFlow", W | H },
        { ".grok", "Grok CLI", W | H },
        { ".qoder", "Qoder", W | H },
        { ".codebuddy", "CodeBuddy", W | H },
        { ".antigravity", "Antigravity", W | H },
        { ".srt-settings.json", "sandbox-runtime", W },
        { ".local/share/cellgate", "cellgate", W },
        { ".cache/cellgate", "cellgate", W },
        { ".local/share/crush", "Crush", W | H },
        { ".local/share/amazon-q", "Amazon Q", H },
        { ".modal.toml", "Modal", H },
        { ".config/io.datasette.llm", "llm", H },
        { ".cache/huggingface/stored_tokens", "Hugging Face", H },
        /* package managers, build programs, interpreters and debuggers */
        { ".npmrc", "npm", W | H },
        { ".yarnrc", "Yarn", W | H },
        { ".yarnrc.yml", "Yarn", W | H },
        { ".yarn/plugins", "Yarn", W },
        { ".yarn/releases", "Yarn", W },
        { ".pnpmfile.cjs", "pnpm", W },
        { ".pnpmfile.mjs", "pnpm", W },
        { ".config/pnpm", "pnpm", W | H },
        { "bunfig.toml", "Bun", W },
        { ".bunfig.toml", "Bun", W | H },
        { ".corepack.env", "Corepack", W },
        { ".node_repl_history", "history", H },
        { ".pypirc", "pip", W | H },
        { ".pip/pip.conf", "pip", W | H },
        { ".config/pip/pip.conf", "pip", W | H },
        { "pip.conf", "pip", W },
        { ".condarc", "conda", W | H },
        { ".pythonrc*", "Python", W },
        { ".pythonstartup*", "Python", W },
        { ".pdbrc*", "Python", W },
        { ".ipython", "IPython", W },
        { ".jupyter", "Jupyter", W | H },
        { "jupyter_*_config.*", "Jupyter", W },
        { ".cargo/config", "cargo", W },
        { ".cargo/config.toml", "cargo", W },
        { ".cargo/credentials", "cargo", W | H },
        { ".cargo/credentials.toml", "cargo", W | H },
        { ".bundle", "Bundler", W },
        { ".gemrc", "RubyGems", W },
        { ".gem/credentials", "RubyGems", W | H },
        { ".irbrc", "Ruby", W },
        { ".pryrc", "Ruby", W },
        { ".Rprofile", "R", W },
        { ".Renviron", "R", W | H },
        { ".mvn", "Maven", W },
        { ".m2/settings*.xml", "Maven", W | H },
        { ".gradle/init.*", "Gradle", W },
        { ".gradle/gradle.properties", "Gradle", W | H },
        { ".sbtopts", "sbt", W },
        { ".sbt", "sbt", W },
        { ".bazelrc", "Bazel", W },
        { ".bazeliskrc", "Bazel", W },
        { ".buckconfig*", "Buck", W },
        { ".gdbinit", "gdb", W },
        { ".gdbearlyinit", "gdb", W },
        { ".lldbinit*", "lldb", W },
        { ".ghci", "GHC", W },
        { ".ocamlinit", "OCaml", W },
        { ".guile", "Guile", W },
        { ".perldb", "Perl", W },
        { ".julia/config", "Julia", W },
        { ".iex.exs", "Elixir", W },
        { ".erlang", "Erlang", W },
        { ".octaverc", "Octave", W },
        { ".psqlrc", "psql", W },
        { ".sqliterc", "sqlite", W },
        { ".config/composer/auth.json", "Composer", W | H },
        { ".composer/auth.json", "Composer", W | H },
        { ".nuget", "NuGet", W | H },
        { ".config/NuGet", "NuGet", W | H },
        { ".rustup", "cargo", W },
        { ".config/go", "Go", W },
        { ".mavenrc", "Maven", W },
        { ".antrc", "Ant", W },
        { ".ant", "Ant", W },
        { ".jvmopts", "sbt", W },
        { ".lein", "Leiningen", W | H },
        { ".local/lib/python3*", "Python", W },
        { ".local/share/jupyter/kernels", "Jupyter", W },
        { ".local/share/jupyter/runtime", "Jupyter", W | H },
        { ".local/share/jupyter/lab*", "Jupyter", W },
        { ".local/share/pipx", "pipx", W },
        { ".makepkg.conf", "makepkg", W },
        { ".hex", "Elixir", W | H },
        { ".pub-cache/credentials.json", "Dart", W | H },
        { ".config/dart", "Dart", H },
        { ".ivy2/.credentials", "sbt", H },
        { ".config/cachix", "Nix", H },
        { ".config/pypoetry", "Poetry", W | H },
        { ".histfile", "history", H },
        { ".zhistory", "history", H },
        { ".local/share/atuin", "history", H },
        { ".local/share/zsh", "history", H },
        { ".ipython/profile_default/history.sqlite", "history", H },
        { ".mongodb", "history", H },
        { ".duckdb_history", "history", H },
        { ".config/stripe", "Stripe", H },
        { ".config/scw", "Scaleway", H },
        { ".config/openstack", "OpenStack", H },
        { ".aliyun", "Alibaba Cloud", H },
        { ".config/sentry", "Sentry", H },
        { ".sentryclirc", "Sentry", H },
        { ".config/syncthing", "Syncthing", H },
        { ".local/state/syncthing", "Syncthing", H },
        { ".ansible/galaxy_token", "Ansible", H },
        { ".transifexrc", "Transifex", H },
        /* keys and password stores */
        { ".ssh", "ssh", W | H },
        { ".gnupg", "GnuPG", W | H },
        { ".password-store", "pass", H },
        { ".local/share/keyrings", "GNOME", H },
        { ".local/share/kwalletd", "KDE", H },
        { ".pki", "NSS", H },
        { ".vault-token", "Vault", H },
        { ".config/sops", "sops", H },
        { ".config/age", "age", H },
        { ".config/op", "1Password", H },
        { ".config/keybase", "Keybase", H },
        { ".config/Bitwarden CLI", "Bitwarden", H },
        { "*.kdbx", "KeePass", H | B },
        { ".config/keepassxc", "KeePass", H },
        { ".Xauthority", "X", H },
        { ".ICEauthority", "X", H },
        { ".authinfo*", "Emacs", H | B },
        { ".netrc", "curl", H | B },
        { "_netrc", "curl", H | B },
        { ".bitcoin", "wallets", H },
        { ".litecoin", "wallets", H },
        { ".dogecoin", "wallets", H },
        { ".ethereum", "wallets", H },
        { ".electrum", "wallets", H },
        { ".config/solana", "wallets", H },
        { ".monero", "wallets", H },
        { ".bitmonero", "wallets", H },
        { ".config/Exodus", "wallets", H },
        { ".config/Ledger Live", "wallets", H },
        { ".near-credentials", "wallets", H },
        { ".foundry/keystores", "wallets", H },
        { "wallet.dat", "wallets", H | B },
        { ".env", "programs", B },
        { ".env.*", "programs", B },
        { ".secrets", "programs", B },
        /* clouds and clusters */
        { ".aws/config", "AWS", W },
        { ".aws/credentials", "AWS", W },
        { ".aws", "AWS", H },
        { ".azure", "Azure", H },
        { ".oci", "OCI", H },
        { ".config/gcloud", "Google Cloud", H },
        { ".config/doctl", "DigitalOcean", H },
        { ".config/hcloud", "Hetzner", H },
        { ".config/rclone", "rclone", H },
        { ".config/fly", "Fly.io", H },
        { ".fly", "Fly.io", H },
        { ".boto", "boto", H },
        { ".s3cfg", "s3cmd", H },
        { ".kube/config", "kubectl", W },
        { ".kube", "kubectl", H },
        { ".docker/config.json", "Docker", W },
        { ".docker", "Docker", H },
        { ".config/containers/auth.json", "Podman", H },
        { ".terraform.d/credentials.tfrc.json", "Terraform", H },
        { ".terraformrc", "Terraform", W | H },
        { ".databrickscfg", "Databricks", H },
        { ".snowflake", "Snowflake", H },
        { ".snowsql", "Snowflake", H },
        { ".tsh", "Teleport", H },
        { ".config/ngrok", "ngrok", H },
        { ".ngrok2", "ngrok", H },
        { ".wrangler", "Cloudflare", H },
        { ".config/.wrangler", "Cloudflare", H },
        { ".cloudflared", "Cloudflare", H },
        { ".netlify", "Netlify", H },
        { ".config/netlify", "Netlify", H },
        { ".vercel", "Vercel", H },
        { ".local/share/com.vercel.cli", "Vercel", H },
        { ".config/configstore", "npm programs", H },
        { ".supabase", "Supabase", H },
        { ".railway", "Railway", H },
        { ".config/heroku", "Heroku", H },
        { ".linode-cli", "Linode", H },
        { ".config/linode-cli", "Linode", H },
        { ".pulumi/credentials.json", "Pulumi", H },
        { ".config/pulumi", "Pulumi", H },
        { ".bluemix", "IBM Cloud", H },
        { ".config/argocd", "Argo CD", H },
        { ".config/helm/registry", "Helm", H },
        { ".tailscale", "Tailscale", H },
        { ".config/tailscale", "Tailscale", H },
        /* forges, databases, mail, browsers */
        { ".git-credentials", "git", H | B },
        { ".config/git/credentials", "git", H },
        { ".config/gh", "GitHub", H },
        { ".config/glab-cli", "GitLab", H },
        { ".config/hub", "GitHub", H },
        { ".config/tea", "Gitea", H },
        { ".pgpass", "PostgreSQL", H | B },
        { ".my.cnf", "MySQL", H },
        { ".mylogin.cnf", "MySQL", H },
        { ".dbshell", "MongoDB", H },
        { ".config/DBeaverData", "DBeaver", H },
        { ".local/share/DBeaverData", "DBeaver", H },
        { ".msmtprc", "msmtp", H },
        { ".config/msmtp", "msmtp", H },
        { ".fetchmailrc", "fetchmail", H },
        { ".mbsyncrc", "isync", H },
        { ".offlineimaprc", "OfflineIMAP", H },
        { ".mozilla", "Firefox", H },
        { ".thunderbird", "Thunderbird", H },
        { ".config/google-chrome", "Chrome", H },
        { ".config/chromium", "Chromium", H },
        { ".config/BraveSoftware", "Brave", H },
        { ".config/microsoft-edge", "Edge", H },
        { ".config/vivaldi", "Vivaldi", H },
        { ".config/opera", "Opera", H },
        { ".config/Slack", "Slack", H },
        { ".config/discord", "Discord", H },
        { ".config/Signal", "Signal", H },
        { ".local/share/TelegramDesktop", "Telegram", H },
        { ".config/weechat", "WeeChat", H },
        { ".config/hexchat", "HexChat", H },
        { ".config/remmina", "Remmina", H },
        { ".local/share/remmina", "Remmina", H },
        { ".config/filezilla", "FileZilla", H },
        { ".smbcredentials", "CIFS", H },
        { ".davfs2", "davfs2", H },
        { ".config/rustic", "rustic", H },
        { ".config/borg", "Borg", H },
        /* histories, which may contain passwords */
        { ".bash_history", "history", H },
        { ".zsh_history", "history", H },
        { ".python_history", "history", H },
        { ".psql_history", "history", H },
        { ".mysql_history", "history", H },
        { ".sqlite_history", "history", H },
        { ".rediscli_history", "history", H },
        { ".irb_history", "history", H },
        { ".lesshst", "history", H },
        { ".viminfo", "history", H },
        { ".local/share/fish/fish_history", "history", H },
};

const struct cg_name *cg_names(size_t *n)
{
        *n = CG_ARRAY_LEN(table);
        return table;
}

/* Templates of ".env", which hold no values. */
static bool is_template(const char *name, size_t len)
{
        static const char *const ends[] = { ".example", ".sample",   ".template",
                                            ".dist",    ".defaults", ".schema" };

        for (size_t i = 0; i < CG_ARRAY_LEN(ends); i++) {
                size_t n = strlen(ends[i]);

                if (len > n && strncasecmp(name + len - n, ends[i], n) == 0)
                        return true;
        }
        return false;
}

/* Length without trailing dots and spaces, which some file systems ignore. */
static size_t trimmed(const char *name, size_t len)
{
        while (len > 1 && (name[len - 1] == '.' || name[len - 1] == ' '))
                len--;
        return len;
}

/*
 * Letters that case-insensitive file systems (ext4 with casefold, shares of macOS) fold to ASCII:
 * Unicode's full case folding without ignorable code points.
 */
static const struct {
        unsigned int first, last;
        const char *as;
} folds[] = {
        { 0xad, 0xad, "" },        { 0xdf, 0xdf, "ss" },     { 0x17f, 0x17f, "s" },
        { 0x34f, 0x34f, "" },      { 0x61c, 0x61c, "" },     { 0x115f, 0x1160, "" },
        { 0x17b4, 0x17b5, "" },    { 0x180b, 0x180f, "" },   { 0x1e9e, 0x1e9e, "ss" },
        { 0x200b, 0x200f, "" },    { 0x202a, 0x202e, "" },   { 0x2060, 0x206f, "" },
        { 0x212a, 0x212a, "k" },   { 0x3164, 0x3164, "" },   { 0xfb00, 0xfb00, "ff" },
        { 0xfb01, 0xfb01, "fi" },  { 0xfb02, 0xfb02, "fl" }, { 0xfb03, 0xfb03, "ffi" },
        { 0xfb04, 0xfb04, "ffl" }, { 0xfb05, 0xfb06, "st" }, { 0xfe00, 0xfe0f, "" },
        { 0xfeff, 0xfeff, "" },    { 0xffa0, 0xffa0, "" },   { 0xfff0, 0xfff8, "" },
        { 0xe0000, 0xe0fff, "" },
};

/* Decodes UTF-8; *used: number of bytes. An invalid byte is one character, and is not folded. */
static unsigned int code_point(const char *s, size_t len, size_t *used)
{
        const unsigned char *u = (const unsigned char *)s;
        size_t n = u[0] >= 0xf0 ? 4 : u[0] >= 0xe0 ? 3 : u[0] >= 0xc0 ? 2 : 1;
        unsigned int c = n == 1 ? 0 : u[0] & (0x7f >> n);

        *used = 1;
        for (size_t i = 1; i < n; i++) {
                if (i >= len || (u[i] & 0xc0) != 0x80)
                        return 0;
                c = c << 6 | (u[i] & 0x3f);
        }
        *used = n;
        return c;
}

/* Folds @name as such file systems do, except for ASCII capitals. Return: length in @to. */
static size_t folded(const char *name, size_t len, char to[NAME_MAX + 1])
{
        size_t n = 0;

        for (size_t at = 0, used; at < len; at += used) {
                unsigned int c = code_point(name + at, len - at, &used);
                const char *as = NULL;

                for (size_t i = 0; i < CG_ARRAY_LEN(folds) && c && !as; i++)
                        as = c >= folds[i].first && c <= folds[i].last ? folds[i].as : NULL;
                memcpy(to + n, as ? as : name + at, as ? strlen(as) : used);
                n += as ? strlen(as) : used;
        }
        return n;
}

static bool is_ascii(const char *name, size_t len)
{
        for (size_t i = 0; i < len; i++) {
                if ((unsigned char)name[i] >= 0x80)
                        return false;
        }
        return true;
}

static bool has_name(const char *pattern, size_t plen, const char *name, size_t len)
{
        char p[NAME_MAX + 1], n[NAME_MAX + 1], plain[NAME_MAX + 1];

        if (len <= NAME_MAX && !is_ascii(name, len)) {
                len = folded(name, len, plain);
                name = plain;
        }
        len = trimmed(name, len);
        if (!memchr(pattern, '*', plen))
                return plen == len && strncasecmp(pattern, name, len) == 0;
        if (len > NAME_MAX || plen > NAME_MAX)
                return false;
        memcpy(p, pattern, plen);
        p[plen] = '\0';
        memcpy(n, name, len);
        n[len] = '\0';
        return fnmatch(p, n, FNM_CASEFOLD | FNM_NOESCAPE) == 0;
}

/* Inline, since init calls it for each row of the table when a file is created. Rows are ASCII. */
static char lower(char c)
{
        return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Fast path: @name may match the first name of @pattern. */
static bool may_begin(const char *pattern, const char *name)
{
        if ((unsigned char)name[0] >= 0x80 || (name[0] && (unsigned char)name[1] >= 0x80))
                return true; /* has_name() decides */
        if (pattern[0] == '.')
                return name[0] == '.' && (pattern[1] == '*' || lower(pattern[1]) == lower(name[1]));
        return pattern[0] == '*' || lower(pattern[0]) == lower(name[0]);
}

enum fit { NO, BEGINS, WHOLE };

/* Matches @pattern with the names of @path from @at on. *end: end of the last name compared. */
static enum fit fits_at(const char *pattern, const char *at, const char **end)
{
        for (;;) {
                size_t plen = strcspn(pattern, "/"), len = strcspn(at, "/");

                if (!has_name(pattern, plen, at, len))
                        return NO;
                pattern += plen;
                at += len;
                *end = at;
                if (!*pattern)
                        return WHOLE;
                if (!*at)
                        return BEGINS;
                pattern++;
                at++;
        }
}

/* Matches @pattern at each name of @path; BEGINS only at the end of the path. */
static bool fits(const char *pattern, const char *path, size_t root, enum fit want)
{
        const char *end;

        for (const char *at = path; (at = strchr(at, '/'));) {
                at++;
                if (may_begin(pattern, at) && fits_at(pattern, at, &end) == want &&
                    (size_t)(end - path) > root)
                        return true;
        }
        return false;
}

/* Part of a Python environment: pip writes it, and only programs of the environment read it. */
static const char of_environment[] = "etc/jupyter/jupyter_*_config.d";

/* For each name all rows, most of which differ in the first letter. */
static const char *find_row(const char *path, size_t root, unsigned int what, enum fit want)
{
        const char *end;

        for (const char *at = path; (at = strchr(at, '/'));) {
                at++;
                for (size_t i = 0; i < CG_ARRAY_LEN(table); i++) {
                        if (may_begin(table[i].path, at) && table[i].what & what &&
                            fits_at(table[i].path, at, &end) == want && (size_t)(end - path) > root &&
                            (strncmp(table[i].path, "jupyter_", 8) != 0 ||
                             !fits(of_environment, path, root, WHOLE)))
                                return table[i].path;
                }
        }
        return NULL;
}

bool cg_names_match(const char *pattern, const char *path, size_t root)
{
        return fits(pattern, path, root, WHOLE);
}

const char *cg_names_find(const char *path, size_t root, unsigned int what)
{
        return find_row(path, root, what, WHOLE);
}

bool cg_names_has(const struct cg_name *row, const char *name)
{
        size_t len = strlen(name);

        return may_begin(row->path, name) && has_name(row->path, strlen(row->path), name, len) &&
               (strncmp(row->path, ".env", 4) != 0 || !is_template(name, len));
}

const char *cg_names_leads(const char *path, size_t root)
{
        return find_row(path, root, CG_NAME_WRITE, BEGINS);
}

/* ---- git */

static bool is(const char *name, size_t len, const char *want)
{
        return has_name(want, strlen(want), name, len);
}

static bool is_dot_git(const char *name, size_t len)
{
        return is(name, len, ".git") || is(name, len, "git~1"); /* the short name on Windows file systems */
}

/* Names that may only be folders. */
static bool is_fixed(const char *name, size_t len)
{
        return is(name, len, "hooks") || is(name, len, "modules") || is(name, len, "worktrees") ||
               is(name, len, "remotes") || is(name, len, "branches");
}

static bool is_obeyed(const char *name, size_t len)
{
        return is(name, len, "config.worktree") || is(name, len, "commondir") ||
               is(name, len, CG_GIT_CONFIG_FRESH "*");
}

/* Classifies a path in the repository's own folder. Branches may have any name. */
static enum cg_git_part part_within(const char *rest)
{
        const char *last = strrchr(rest, '/');
        size_t len = strcspn(rest, "/");

        if (is(rest, len, "refs") || is(rest, len, "logs") || is(rest, len, "objects"))
                return CG_GIT_FREE;
        /* Old remotes by files, with any address. git init makes the folders. */
        if (is(rest, len, "remotes") || is(rest, len, "branches"))
                return rest[len] ? CG_GIT_DENIED : CG_GIT_HOOKS;
        for (const char *p = rest; p; p = strchr(p, '/') ? strchr(p, '/') + 1 : NULL) {
                size_t n = strcspn(p, "/");

                if (!is(p, n, "hooks"))
                        continue;
                if (!p[n])
                        return CG_GIT_HOOKS;
                p += n + 1;
                n = strlen(p);
                return !strchr(p, '/') && n > 7 && strcmp(p + n - 7, ".sample") == 0 ? CG_GIT_SAMPLE
                                                                                     : CG_GIT_DENIED;
        }
        last = last ? last + 1 : rest;
        if (is(last, strlen(last), "config"))
                return CG_GIT_CONFIG;
        if (is_obeyed(last, strlen(last)))
                return CG_GIT_DENIED;
        return is_fixed(last, strlen(last)) ? CG_GIT_HOOKS : CG_GIT_FREE;
}

/* The first .git in @path from @from on that ends below the root; NULL: none. */
static const char *find_dot_git(const char *path, const char *from, size_t root)
{
        for (const char *at = from; (at = strchr(at, '/'));) {
                size_t len = strcspn(++at, "/");

                if (is_dot_git(at, len) && (size_t)(at + len - path) > root)
                        return at;
        }
        return NULL;
}

bool cg_git_is_within(const char *path, size_t root)
{
        return find_dot_git(path, path, root) != NULL;
}

enum cg_git_part cg_git_part(const char *path, size_t root)
{
        enum cg_git_part part = CG_GIT_FREE;

        /* A repository may be in the branches of another. */
        for (const char *git = path; part == CG_GIT_FREE && (git = find_dot_git(path, git, root));) {
                size_t len = strcspn(git, "/");

                part = git[len] ? part_within(git + len + 1) : CG_GIT_SELF;
        }
        return part;
}

enum cg_git_part cg_git_part_bare(const char *path, size_t root, size_t *next, size_t *top)
{
        const char *last = strrchr(path, '/') + 1, *at = path + (*next ? *next : root);

        while ((at = strchr(at, '/'))) {
                size_t len = strcspn(++at, "/");

                if (is_fixed(at, len) || (at == last && (is(at, len, "config") || is_obeyed(at, len)))) {
                        *top = (size_t)(at - 1 - path);
                        *next = (size_t)(at - path);
                        return part_within(at);
                }
        }
        return CG_GIT_FREE;
}

const char *cg_names_of(const char *path)
{
        const char *name = cg_names_find(path, 0, CG_NAME_WRITE);
        enum cg_git_part part;
        size_t next = 0, top;

        if (!name)
                name = cg_names_leads(path, 0);
        if (name)
                return name;
        part = cg_git_part(path, 0);
        if (part == CG_GIT_FREE)
                part = cg_git_part_bare(path, 0, &next, &top);
        return part == CG_GIT_CONFIG                            ? ".git/config"
               : part == CG_GIT_HOOKS || part == CG_GIT_SAMPLE  ? ".git/hooks"
               : part == CG_GIT_DENIED && strstr(path, "hooks") ? ".git/hooks"
                                                                : ".git";
}
