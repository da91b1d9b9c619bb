# Sourced: provides the quickstart's default text, an English dictionary from Debian's archive.
# shellcheck shell=bash

# fetch_dictionary DIRECTORY: downloads gcide.dict.dz into DIRECTORY. The package is unpacked but not
# installed, because its installation starts a dictionary server.
fetch_dictionary() {
  local directory=$1 work
  work=$(mktemp -d "$directory/.fetch.XXXXXX")
  echo "downloading Debian's dict-gcide (14 MB), an English dictionary, as training text; it is not installed"
  if ! apt-cache show dict-gcide >/dev/null 2>&1; then
    if ((EUID != 0)); then
      echo "apt does not list the package yet; run this command, then retry: sudo apt-get update"
      exit 75
    fi
    apt-get update -qq </dev/null
  fi
  if ! (cd "$work" && apt-get -qq -o APT::Sandbox::User=root download dict-gcide </dev/null); then
    rm -rf "$work"
    echo "cannot download dict-gcide; to use your own text: ./quickstart.sh TEXT..." >&2
    exit 75
  fi
  dpkg-deb -x "$work"/dict-gcide_*.deb "$work/files"
  mv "$work/files/usr/share/dictd/gcide.dict.dz" "$directory/"
  mv "$work/files/usr/share/doc/dict-gcide/copyright" "$directory/"
  rm -rf "$work"
}

# prepare_dictionary DIRECTORY BYTES: writes train.txt, validation.txt and byte_model_BYTES.txt. The last
# holds the loss of scripts/byte_model.py on the first BYTES of the held-out text, in nats per byte.
prepare_dictionary() {
  mkdir -p "$1"
  [[ -f $1/gcide.dict.dz ]] || fetch_dictionary "$1"
  [[ -f $1/train.txt && -f $1/validation.txt ]] ||
    python3 scripts/prepare_gcide.py "$1/gcide.dict.dz" "$1"
  [[ -s $1/byte_model_$2.txt ]] || {
    python3 scripts/byte_model.py "$1/train.txt" "$1/validation.txt" "$2" >"$1/byte_model.tmp"
    mv "$1/byte_model.tmp" "$1/byte_model_$2.txt"
  }
}
