var ErrIterLimit = errors.New("agent: iteration limit reached")
var ErrRunInProgress = errors.New("agent: run already in progress")
type Agent struct
type AgentRegistry struct
type AgentType int
type Option func(*Agent)
type Profile struct
func New(parent *Agent, profile Profile, opts ...Option) (*Agent, error)
func (a *Agent) AgentID() string
func (a *Agent) BeginWorktreeSession(s mode.WorktreeSession)
func (a *Agent) Broker() permission.Broker
func (a *Agent) Compact(ctx context.Context, kind string) error
func (a *Agent) Continue(ctx context.Context) (string, error)
func (a *Agent) CyclePermissionMode() string
func (a *Agent) DeferredNames() []tools.ToolName
func (a *Agent) Describe(name tools.ToolName) (tools.Descriptor, error)
func (a *Agent) Effort() string
func (a *Agent) EndWorktreeSession()
func (a *Agent) IsAsync() bool
func (a *Agent) IsSubagent() bool
func (a *Agent) ListMainProfiles() []ui.ProfileChoice
func (a *Agent) ListSessions() ([]ui.SessionInfo, []string)
func (a *Agent) Logger() *slog.Logger
func (a *Agent) MaxIterations() int
func (a *Agent) Model() string
func (a *Agent) ParentID() string
func (a *Agent) PermissionBroker() permission.Broker
func (a *Agent) PermissionMode() permission.Mode
func (a *Agent) PermissionModeName() string
func (a *Agent) PermissionStore() *permission.Store
func (a *Agent) PlanModeState() *permission.PlanModeState
func (a *Agent) PrePlanMode() permission.Mode
func (a *Agent) Profile() Profile
func (a *Agent) ProfileName() string
func (a *Agent) ResolveTool(name tools.ToolName) (tools.Tool, error)
func (a *Agent) RespondPermission(id string, dec ui.PermissionDecision) error
func (a *Agent) RespondQuestion(id string, resp ui.QuestionResponse) error
func (a *Agent) ResumeSession(id string) error
func (a *Agent) ResumeSnapshot(snap *session.Snapshot) error
func (a *Agent) Run(ctx context.Context, prompt string) (string, error)
func (a *Agent) Session() *session.Session
func (a *Agent) SetEffort(level string) error
func (a *Agent) SetMaxIterations(n int)
func (a *Agent) SetPermissionMode(m permission.Mode)
func (a *Agent) SetPrePlanMode(m permission.Mode)
func (a *Agent) Sink() event.Sink
func (a *Agent) Skills() []ui.Skill
func (a *Agent) Spawn(ctx context.Context, req meta.SpawnRequest) (string, error)
func (a *Agent) Status() constant.AgentStatus
func (a *Agent) SubagentTypes() []string
func (a *Agent) SwitchLLM(provider constant.LLMProvider, model constant.Model) error
func (a *Agent) SwitchProfile(name string) error
func (a *Agent) SwitchWorkdir(path string) error
func (a *Agent) Tool(name string) (tools.Tool, bool)
func (a *Agent) ToolState() *toolset.ToolState
func (a *Agent) Workdir() string
func (a *Agent) WorktreeSession() *mode.WorktreeSession
func BuildAgentRegistry(evvaHome string) (*AgentRegistry, []loader.Warning)
func NewAgentRegistry() *AgentRegistry
func (*AgentRegistry) All
func (*AgentRegistry) Get
func (r *AgentRegistry) ListMain() []sysprompt.AgentDefinition
func (r *AgentRegistry) ListSubagent() []sysprompt.AgentDefinition
func (*AgentRegistry) Register
func (t AgentType) String() string
func WithAgentRegistry(r *AgentRegistry) Option
func WithAsync(async bool) Option
func WithConfig(cfg *config.Config) Option
func WithCustomTool(name tools.ToolName, factory pubtoolset.ToolFactory) Option
func WithMaxIterations(n int) Option
func WithMemorySnapshot(snap memdir.Snapshot) Option
func WithName(name string) Option
func WithPermissionBroker(b permission.Broker) Option
func WithPermissionMode(m permission.Mode) Option
func WithPermissionStore(s *permission.Store) Option
func WithPersona(name string) Option
func WithQuestionBroker(b question.Broker) Option
func WithSink(s event.Sink) Option
func WithSkillRefs(refs []sysprompt.SkillRef) Option
func WithSkillRegistry(r *skill.Registry) Option
func WithStream(stream bool) Option
func Explore(cfg *config.Config, provider constant.LLMProvider, model constant.Model, options []llm.Option) Profile
func General(cfg *config.Config, provider constant.LLMProvider, model constant.Model, options []llm.Option, toolset ...tools.ToolName) Profile
func Main(cfg *config.Config, provider constant.LLMProvider, model constant.Model, skills []sysprompt.SkillRef, mem memdir.Snapshot, options []llm.Option) Profile
func Plan(cfg *config.Config, provider constant.LLMProvider, model constant.Model, options []llm.Option) Profile
func ResolveMainProfile(cfg *config.Config, reg *AgentRegistry, name string, skills []sysprompt.SkillRef, mem memdir.Snapshot, options []llm.Option) (Profile, error)
