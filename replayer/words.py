"""Pure: the words that generated prompts consist of.

Each is one token, together with the space before it, in the vocabularies cl100k, o200k, p50k, and those of DeepSeek V3
and Claude 2: so a text of n words is close to n tokens at any engine, and calibration only has to correct the rest.
"""

WORDS: tuple[bytes, ...] = tuple(
    b" " + word
    for word in b"""
able about above accept access account across action active actual add adult advice affect again against
agent agree ahead all allow almost alone along already also always among amount animal another answer any
anyone apple apply area argue arm army article artist ask at avoid aware away baby back bad bag balance band
bar base basic basis bat beat beauty became because bed been before began begin behind being benefit beside
best better between beyond big bird birth bit black blow blue board boat book border born both bottom bought
bowl box boy brain bread bridge brief bright bring broad broken brought build built burn bus busy but cable
call came camera camp can capital captain car carbon card care carry case cat cause cell center century
certain chain chair chance change chapter charge cheap check church circle citizen city civil claim class
clean click client climate climb close cloud club coach coast coffee cold collect color column comfort
command comment common company compare complex concept concern contact context control cook cool copper copy
corner correct cost could council count country couple courage course court cover create credit crime crisis
critic cross crowd culture cup custom cycle daily dance danger dark day dear debate debt decade decide deep
defense degree delay deliver density depth desert desire develop differ dinner direct disease dish display
doctor dollar domain door double doubt down drama dream dress drink drive drop dry due during dust duty each
early earn earth economy edge edit effect effort egg eight either elect else email empty end enjoy enough
ensure enter entire entry equal error escape evening event every exact example except exit expert express
extend extra eye fact factor fail faith fall family famous far fashion fast father fear feature federal feed
feeling fellow felt female few field fight figure file fill film filter final finance find finish firm first
fish fit five fix flat flow fly focus follow food force foreign form formal former forward four frame free
freedom fresh friend front fruit fun fund funny future gas gate gender general get giant gift girl given
glass global gold good grade grand grass great ground group grow growth guess guest had half hand happen
happy hard has hat have head health hear heard heart heat heavy height held help her hero high hill him his
history hit hold holiday home honor hope horse hour house however human hundred hurt ice image impact import
improve inch include income index initial instead into issue item job join joint journey joy jury just
justice kept key kind king kitchen knew known label labor lady large last later laugh launch lawyer lay lead
leader leaf learn least leave left leg legal length less let letter level library lie lift light like likely
limit line link lion list listen little live loan lock look loss lot love low luck lunch machine made main
make male manage manager manner many map march mark marry mass matter maybe meal mean measure meat meeting
member men message metal mile milk million mind mine minor minute miss mission mix mobile mode model modern
moment money monitor mood moon moral more morning motor mount mouse muscle music must myself name nation
native natural nature neck need nerve net network never new news nice night nine noise none nor north nose
not now nuclear number object occur off offer office officer often old one online only onto open opinion
option orange order other out outside oven pace pack pain pair palace panel paper parent part partner party
pass patient pattern pay peace people per perfect period permit person phase phone phrase piano pick picture
piece pilot pink pipe pitch plain plane plant plastic play player please plenty poem poet police policy pool
popular port pose possess post pot power press pretty prevent price primary print prior private prize
problem process product profit program proof proper protect prove provide public pull pupil pure purpose put
quality quarter query quick quiet race radio rail raise ran range rare rate rather ratio reach read reader
ready real reason recent record red reduce refer reflect reform region regular release rely remain remote
remove rent repair repeat report request rescue reserve resolve respect rest return review ride right ring
risk river rock role roll roof root rope rough round route row royal rule run rural rush sad safe safety
said salary sale salt sample save saw say scale school science score sea season seat second secret section
sector secure see seed seek seem seen select self sell send sent series serious session set several shade
shadow shall shape share sheet shelf shell shift shirt shock shop shore short should shown shut sick sign
signal silence silver sing single sister sit site six size skill sky sleep slight slip small smart smell
smile smoke snow social society soft soldier solid solve son song soon sort sound source south speak speech
speed spell spend spent spirit split sport spot spread square staff stand star start state station steady
steel step stick still stock stone story strange street strike student studio study style subject success
sudden sugar suggest suit summer sun support surface survey sweet swim switch system table take tale talk
target task taste taught tax teach teacher team tell ten tend test text thank that theme then theory there
thick thin thing third this those though thought thread three through throw thus ticket tight title toe told
tone tonight too took tool top topic total tour tower track traffic treat trend trial tribe trust truth try
turn twelve twenty twice twin two type under union unit upper urban use used usual valley value variety
various version very vessel view village virtue vision visit vital voice volume wall want war warning wash
waste watch water wave way weak wealth wear weather web wedding week weight welcome well went were wet what
wheel when where whether which while white who whose why wide wife wild will win wind window wine wing
winner wisdom wise with within without woman won wonder wood word work world worry worst worth would write
writer wrong yard year yellow yes yet young your youth zone
""".split()
)
"""1,024 different English words of 2 to 7 letters, each with a leading space."""
