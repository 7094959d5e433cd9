# Verifies the checksum of weights in the image. Arguments: FILE SHA256
for data in "${1%/*}"/*.data "${1%/*}"/*_data "${1%/*}"/*_data_*; do
  if [ -e "$data" ]; then
    echo "$1: must contain its weights to be verified by sha256, got external data $data" >&2
    exit 1
  fi
done
[ -r "$1" ] || { echo "$1: must be in the image, and is not" >&2; exit 1; }
got=$(sha256sum <"$1" | cut -c 1-64)
if [ "$got" != "$2" ]; then
  echo "$1: sha256 must be $2, got $got" >&2
  exit 1
fi
