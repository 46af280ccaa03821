"""Words of several languages that `grounding` ignores or treats specially in comparisons.

In other languages no word is ignored, so fewer notes pass its check.
"""

_EMPTY_WORDS_TEXT = """
a an the and or of to in on at by for with from as is are be was were been am it its this that
these those there here i me my we us our you your he she they them their who which what when
where how if then than so do does did done has have had can could should would will may might
must shall please just also always whenever every all any some each ok okay yes about into up
user users person persons people prefer prefers preferred preference wants want wanted likes
like project projects repository repo uses use used using say says said called named name only
der die das den dem des ein eine einen einem einer und oder von zu im in am an auf bei mit für
aus als ist sind war sein es er sie wir uns ich mir mich mein meine du dein ihr ihre man bitte
immer auch wenn dann wie was wer soll sollen will wollen möchte kann muss nutzer person projekt
le la les un une des du de et ou à au aux en dans sur par pour avec est sont je me mon ma mes tu
il elle nous vous on ce cette toujours aussi si que qui projet utilisateur
el los las una unos y o del al por para con es son yo mi tus su que quien siempre también
usuario proyecto lo gli uno di e da per che sempre utente progetto o os as um uma do dos da das
em na é são eu meu sempre het een van op met te ik mijn en altijd
и в на с я мне мой это
"""
_DENIAL_WORDS_TEXT = """
not no never none nothing nor cannot dont doesnt didnt wont cant without avoid avoids stop
nicht nie kein keine keinen keiner niemals ohne
ne pas jamais aucun aucune sans nunca jamás sin ni non mai senza não nem sem niet geen nooit
zonder не нет никогда без нельзя
"""
_TURN_WORDS_TEXT = """
instead rather over than statt stattdessen lieber anstatt plutôt lugar vez invece anziché unless
except until sondern
"""
_OF_ONESELF = (
    "i i'm me my mine we us our ich mir mich mein uns je moi mon nous yo mi io mio eu"
)

# Words that only keep a conversation going.
_IDLE_WORDS_TEXT = """
go on ahead again more next now then and continue proceed resume carry keep going do it try retry
yes yeah yep yup no nope ok okay okey k sure fine good great nice perfect cool right correct done
thank thanks thx ty you very much so a lot please hi hello hey bye goodbye morning evening test
weiter mach ja nein gut danke bitte schön sehr hallo tschüss super passt
continue vas y oui non merci bonjour salut bien sí si gracias hola adiós vale dale sigue
grazie ciao bene avanti sim não obrigado obrigada olá tchau ja nee dank je wel hoi
да нет спасибо привет дальше
"""
# Words without a meaning of their own: articles and the like, and the phrasing of notes.
EMPTY_WORDS = frozenset(_EMPTY_WORDS_TEXT.split())
IDLE_WORDS = frozenset(_IDLE_WORDS_TEXT.split())
DENIAL_WORDS = frozenset(_DENIAL_WORDS_TEXT.split())
# Denials in scripts without blanks between words.
DENYING_SIGNS = ("不", "没", "別", "别", "勿", "無", "无", "ない", "ません", "않")
# Words of phrases with a negated side, such as "X instead of Y": counting negations in these says
# nothing.
TURN_WORDS = frozenset(_TURN_WORDS_TEXT.split())
# Words with which users speak of themselves, and not of a project.
SELF_WORDS = frozenset(_OF_ONESELF.split())
