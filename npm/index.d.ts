type PathEntry = string | { path: string; literal: true }
export interface NetworkConfig { allowedDomains: string[]; deniedDomains: string[]; [key: string]: unknown }
export interface FilesystemConfig { denyRead: PathEntry[]; allowWrite: PathEntry[]; denyWrite: PathEntry[]; [key: string]: unknown }
export type IgnoreViolationsConfig = Record<string, string[]>
/** As in a settings file (docs/settings.md); other keys of it may be given, too. */
export interface SandboxRuntimeConfig {
  network: NetworkConfig
  filesystem: FilesystemConfig
  ignoreViolations?: IgnoreViolationsConfig
  [key: string]: unknown
}
export type CustomConfig = { [K in keyof SandboxRuntimeConfig]?: Partial<SandboxRuntimeConfig[K]> }
export interface NetworkHostPattern { host: string; port: number | undefined }
/** Decides about a host that is on no list. Only `true` allows it. */
export type SandboxAskCallback = (params: NetworkHostPattern) => Promise<boolean | { allow: false; reason: string }>
export interface FsReadRestrictionConfig { denyOnly: string[]; allowWithinDeny: string[] }
export interface FsWriteRestrictionConfig { allowOnly: string[]; denyWithinAllow: string[] }
export interface NetworkRestrictionConfig { allowedHosts?: string[]; deniedHosts?: string[] }
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
/** Empty: cellgate makes masked values in each command. What would add one is an Error. */
export interface SentinelRegistry {
  readonly size: number
  register(name: string, realValue: string, injectHosts: readonly string[]): never
  registerWithSentinel(name: string, sentinel: string, realValue: string, injectHosts: readonly string[]): never
  lookupReal(sentinel: string): undefined
  entries(): IterableIterator<[string, string]>
  clear(): void
}
/** Empty, for the same reason. */
export interface MaskedFileStore {
  readonly dirPath: undefined
  write(key: string, sentinel: string): never
  dispose(): void
}
export declare const SandboxManager: {
  /** `cellgate`: the absolute path of the program, instead of CELLGATE in the environment. */
  initialize(config: SandboxRuntimeConfig, ask?: SandboxAskCallback, enableLogMonitor?: boolean, options?: { cellgate?: string }): Promise<void>
  wrapWithSandbox: Wrap<[options?: WrapWithSandboxOptions], string>
  wrapWithSandboxArgv: Wrap<[cwd?: string, options?: WrapWithSandboxOptions], { argv: string[]; env: Record<string, string | undefined> }>
  /** An Error, and nothing changes, if no command could run with it. */
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
  /** Patterns as the paths that match them now; with the files of credentials that no command can read. */
  getFsReadConfig(): FsReadRestrictionConfig
  getFsWriteConfig(): FsWriteRestrictionConfig
  getNetworkRestrictionConfig(): NetworkRestrictionConfig
  getProxyPort(): number | undefined
  getSocksProxyPort(): number | undefined
  getSentinelRegistry(): SentinelRegistry
  getMaskedFileStore(): MaskedFileStore
  readonly askCallbackDenyReason: true
  readonly [name: `get${string}`]: () => unknown
}
export declare function getDefaultWritePaths(): string[]
