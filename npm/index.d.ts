type PathEntry = string | { path: string; literal: true }
/** As in a settings file (docs/settings.md); other keys of it may be given, too. */
export interface SandboxRuntimeConfig {
  network: { allowedDomains: string[]; deniedDomains: string[]; [key: string]: unknown }
  filesystem: { denyRead: PathEntry[]; allowWrite: PathEntry[]; denyWrite: PathEntry[]; [key: string]: unknown }
  ignoreViolations?: Record<string, string[]>
  [key: string]: unknown
}
export type CustomConfig = { [K in keyof SandboxRuntimeConfig]?: Partial<SandboxRuntimeConfig[K]> }
export interface NetworkHostPattern { host: string; port: number | undefined }
/** Decides about a host that is on no list. Only `true` allows it. */
export type SandboxAskCallback = (params: NetworkHostPattern) => Promise<boolean | { allow: false; reason: string }>
export interface SandboxViolationEvent { line: string; command?: string; encodedCommand?: string; timestamp: Date }
export declare class SandboxViolationStore {
  addViolation(violation: SandboxViolationEvent): void
  getViolations(limit?: number): SandboxViolationEvent[]
  getCount(): number
  getTotalCount(): number
  getViolationsForCommand(command: string): SandboxViolationEvent[]
  clear(): void
  subscribe(listener: (violations: SandboxViolationEvent[]) => void): () => void
}
export interface WrapWithSandboxOptions { commandId?: string; commandText?: string }
type Wrap<More extends unknown[], Result> = (command: string, binShell?: string, customConfig?: CustomConfig, abortSignal?: AbortSignal, ...more: More) => Promise<Result>
export declare const SandboxManager: {
  /** `cellgate`: the absolute path of the program, instead of CELLGATE in the environment. */
  initialize(config: SandboxRuntimeConfig, ask?: SandboxAskCallback, enableLogMonitor?: boolean, options?: { cellgate?: string }): Promise<void>
  wrapWithSandbox: Wrap<[options?: WrapWithSandboxOptions], string>
  wrapWithSandboxArgv: Wrap<[cwd?: string, options?: WrapWithSandboxOptions], { argv: string[]; env: Record<string, string | undefined> }>
  updateConfig(config: SandboxRuntimeConfig): void
  reset(): Promise<void>
  checkDependencies(): { errors: string[]; warnings: string[] }
  checkDependenciesAsync(): Promise<{ errors: string[]; warnings: string[] }>
  annotateStderrWithSandboxFailures(command: string, stderr: string): string
  getSandboxViolationStore(): SandboxViolationStore
  getConfig(): SandboxRuntimeConfig | undefined
  getLinuxGlobPatternWarnings(): string[]
  isSupportedPlatform(): boolean
  isSandboxingEnabled(): boolean
  waitForNetworkInitialization(): Promise<boolean>
  cleanupAfterCommand(): void
  getFsReadConfig(): { denyOnly: PathEntry[]; allowWithinDeny: PathEntry[] }
  getFsWriteConfig(): { allowOnly: PathEntry[]; denyWithinAllow: PathEntry[] }
  getNetworkRestrictionConfig(): { allowedHosts?: string[]; deniedHosts?: string[] }
  getProxyPort(): number | undefined
  getSocksProxyPort(): number | undefined
  readonly askCallbackDenyReason: true
  readonly [name: `get${string}`]: () => unknown
}
export declare function getDefaultWritePaths(): string[]
