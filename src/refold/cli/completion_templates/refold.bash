# bash completion for refold. Made by: refold completion bash

@tables@

# The line up to the cursor: whole words without their quotes, and the one being typed.
_refold_read() {
    local line=${COMP_LINE:0:COMP_POINT} letter word= begun= i
    for ((i = 0; i < ${#line}; i++)); do
        letter=${line:i:1}
        if [[ $open == "'" && $letter != "'" ]]; then
            word+=$letter
        elif [[ $letter == '\' ]]; then
            i=$((i + 1)) begun=1 word+=${line:i:1}
        elif [[ -n $open ]]; then
            if [[ $letter == "$open" ]]; then open=; else word+=$letter; fi
        elif [[ $letter == "'" || $letter == '"' ]]; then
            open=$letter begun=1
        elif [[ $letter == [[:space:]] ]]; then
            if [[ -n $begun ]]; then words+=("$word"); fi
            word= begun=
        else
            begun=1 word+=$letter
        fi
    done
    current=$word
}

# Of the arguments, those that begin as what is typed does, written as bash wants them.
# Behind an open quote they stand as they are; what would mean something there is left out.
_refold_offer() {
    local each cut= breaks=
    if [[ $COMP_WORDBREAKS == *:* ]]; then breaks+=:; fi
    if [[ $COMP_WORDBREAKS == *=* ]]; then breaks+==; fi
    if [[ -z $open && -n $breaks && $current == *[$breaks]* ]]; then
        cut=${current%"${current##*[$breaks]}"}
    fi
    for each in "$@"; do
        [[ $each == "$current"* ]] || continue
        each=${each#"$cut"}
        case $open in
        "") printf -v each '%q' "$each" ;;
        "'") [[ $each != *\'* ]] || continue ;;
        *) [[ $each != *['"\\$`!']* ]] || continue ;;
        esac
        COMPREPLY+=("$each")
    done
}

# What can stand at $1, each after $2.
_refold_offer_value() {
    local found program=${words[0]/#\~/$HOME}
    [[ $program == */* ]] || program=refold
    _refold_value "$1"
    case $kind in
    none | text) return ;;
    choices) read -ra found <<<"$choices" ;;
    files) compopt -o default 2>/dev/null; return ;;
    directories) compopt -o dirnames 2>/dev/null; return ;;
    *) mapfile -t found < <("$program" completion --complete "$kind" 2>/dev/null) ;;
    esac
    found=("${found[@]%%$'\t'*}")
    _refold_offer "${found[@]/#/$2}"
}

_refold() {
    local words=() current= open= at=refold place=0 flag= must= each i
    local kind choices needed flags subcommands
    COMPREPLY=()
    _refold_read
    for ((i = 1; i < ${#words[@]}; i++)); do
        each=${words[i]}
        if [[ -n $flag ]]; then
            flag=
            if [[ -n $must || $each != -* ]]; then continue; fi
        fi
        if [[ $each == -* ]]; then
            _refold_value "$at $each"
            if [[ $kind != none ]]; then flag=$each must=$needed; fi
        elif ((place == 0)) && [[ $at != refold || $i == 1 ]] && _refold_is_command "$at $each"; then
            at="$at $each"
        else
            place=$((place + 1))
        fi
    done
    if [[ -n $flag && (-n $must || $current != -*) ]]; then
        _refold_offer_value "$at $flag" ""
    elif [[ $current == --*=* ]]; then
        _refold_offer_value "$at ${current%%=*}" "${current%%=*}="
    else
        _refold_names "$at"
        if [[ $current == -* ]]; then
            read -ra each <<<"$flags"
            _refold_offer "${each[@]}"
            return
        fi
        if ((place == 0)) && [[ $at != refold || ${#words[@]} == 1 ]]; then
            read -ra each <<<"$subcommands"
            _refold_offer "${each[@]}"
        fi
        _refold_offer_value "$at $place" ""
    fi
}

complete -F _refold refold
