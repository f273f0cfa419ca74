# What zsh offers at the end of a line: a real zsh on a pseudo terminal, with the script of `xroce completions zsh` in $fpath as an
# installation has it, gets the line and one TAB.
#   zsh -f offers.zsh LINE      in a directory of its own; prints each offer, then "LINE<what the line has become>"
zmodload zsh/zpty || exit
export HERE=$PWD ZDOTDIR=$PWD
mkdir -p functions
xroce completions zsh >functions/_xroce || exit
cat >.zshrc <<'Z'
fpath=($HERE/functions $fpath)
autoload -Uz compinit && compinit -u -D
# Writes down what is added to the matches.
compadd() {
    local -a matches
    local option
    for option in "$@"; do
        [[ $option != -- ]] || break
        [[ $option != -(O|A|D) ]] || { builtin compadd "$@"; return }
    done
    builtin compadd -A matches "$@"
    print -rl -- $matches >>$HERE/offers
    builtin compadd "$@"
}
tell() {
    print -r -- "LINE<$BUFFER>" >>$HERE/offers
    exit
}
zle -N tell
bindkey '^G' tell
PS1='READY>'
Z
: >offers
zpty shell zsh -i
zpty -r -m shell seen '*READY>*'
zpty -w -n shell "$1"$'\t\a'
for ((i = 0; i < 300; i++)); do
    ! grep -q '^LINE<' offers || break
    sleep 0.1
done
zpty -d shell
cat offers
