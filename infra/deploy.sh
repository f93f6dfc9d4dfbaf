#!/usr/bin/env bash
# Deploys tiney to a resource group: the infrastructure, the package, and a test that shortens a URL
# and follows it. docs/deployment.md explains the steps.
#
# It uses only features of bash 3.2, which is the bash of macOS. Progress goes to stderr. stdout
# gets the what-if and, as its last line, the URL.
set -euo pipefail -f

usage() {
  cat <<'USAGE'
usage: infra/deploy.sh -g GROUP [options]

  -g, --resource-group GROUP  the resource group; it is created if it does not exist
  -l, --location REGION       the region (default: the group's; of a new one canadacentral)
      --plan PLAN             Y1, F1, FC1, B1, P0v3 or P1v3 (default: what the parameters file says)
      --parameters FILE       values for main.bicep (default: parameters.dev.json for F1, else parameters.prod.json)
      --param NAME=VALUE      one more value for main.bicep; may be repeated
      --package FILE          upload this package, and build none
      --skip-build            upload the package that the last `make package` left in build
      --expect VERSION        the version that has to run (default: the one that was built; with another image than
                              before, another one than before; else any)
      --what-if               show what a deployment would change, and end
  -y, --yes                   ask nothing
      --destroy               delete the resource group with all that is in it
  -h, --help                  this text

The subscription is the one of `az account show`. Running it again is safe: it changes what differs.

The first deployment makes an admin key, which later ones keep. It is in the site's setting ADMIN_KEY.

  TINEY_WAIT=900              seconds to wait for a site that responds, and as long again for one that works
  TINEY_INTERVAL=5            seconds between two tries; between two uploads 30, if it is not set
  TINEY_UPLOAD_WAIT=900       seconds for the upload, all its tries together

exit status: 0 done, 1 unexpected, 2 wrong usage, 3 something needed is missing, 4 declined, 5 the build failed,
6 Azure refused the deployment, 7 the upload failed, 8 the site does not respond, 9 the site responds but does not work,
10 the group could not be deleted
USAGE
}

readonly unexpected=1 wrong_usage=2 missing_needs=3 declined=4 build_failed=5 deployment_failed=6 upload_failed=7 \
  no_response=8 not_working=9 not_deleted=10

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
wait_seconds=${TINEY_WAIT:-900}
interval=${TINEY_INTERVAL:-5}
upload_interval=${TINEY_INTERVAL:-30}
upload_seconds=${TINEY_UPLOAD_WAIT:-900}

# The tag of groups that this script has created. It deletes other groups only if the user types
# their name. So it is a tag that nobody uses for anything else.
readonly tag_name=created-by tag_value=tiney-deploy

say() { printf '%s\n' "$*" >&2; }

die() { # STATUS TEXT...
  local status=$1
  shift
  say "deploy: $*"
  exit "$status"
}

confirm() { # QUESTION
  local answer=''
  if [ "$yes" = true ]; then return 0; fi
  printf '%s [y/N] ' "$1" >&2
  read -r answer || say ""
  case $answer in y | Y | yes | Yes | YES) return 0 ;; *) return 1 ;; esac
}

group='' location='' plan='' parameters='' package='' expected='' built='' replaced=''
skip_build=false what_if=false yes=false destroy=false
more=()

value_of() { # OPTION COUNT: the value of an option has to be there
  if [ "$2" -lt 2 ]; then
    die $wrong_usage "$1 needs a value; see --help"
  fi
}

while [ $# -gt 0 ]; do
  case $1 in
    -g | --resource-group) value_of "$1" $#; group=$2; shift 2 ;;
    -l | --location) value_of "$1" $#; location=$2; shift 2 ;;
    --plan) value_of "$1" $#; plan=$2; shift 2 ;;
    --parameters) value_of "$1" $#; parameters=$2; shift 2 ;;
    --param) value_of "$1" $#; more+=("$2"); shift 2 ;;
    --package) value_of "$1" $#; package=$2; shift 2 ;;
    --skip-build) skip_build=true; shift ;;
    --expect) value_of "$1" $#; expected=$2; shift 2 ;;
    --what-if) what_if=true; shift ;;
    -y | --yes) yes=true; shift ;;
    --destroy) destroy=true; shift ;;
    -h | --help) usage; exit 0 ;;
    *) die $wrong_usage "unknown option $1; see --help" ;;
  esac
done

if [ -z "$group" ]; then
  die $wrong_usage "--resource-group is needed; see --help"
fi
case $plan in '' | Y1 | F1 | FC1 | B1 | P0v3 | P1v3) ;; *) die $wrong_usage "--plan is Y1, F1, FC1, B1, P0v3 or P1v3, not $plan" ;; esac
for one in ${more[@]+"${more[@]}"}; do
  case $one in
    [A-Za-z]*=*) ;;
    *) die $wrong_usage "--param takes NAME=VALUE" ;; # without the text: it may be half of a value that is no one's business
  esac
done
sites="/subscriptions/{subscriptionId}/resourceGroups/$group/providers/Microsoft.Web/sites"
if [ -z "$parameters" ]; then
  if [ "$plan" = F1 ]; then parameters=$root/infra/parameters.dev.json; else parameters=$root/infra/parameters.prod.json; fi
fi

# --- what is needed -------------------------------------------------------------------------------

missing=()
need() { missing+=("$1"); }

report_missing() {
  local one
  if [ ${#missing[@]} -gt 0 ]; then
    say "deploy: something needed is missing:"
    for one in "${missing[@]}"; do say "  - $one"; done
    exit $missing_needs
  fi
}

need_az() {
  local version major minor
  if ! command -v az >/dev/null; then
    need "az, the Azure CLI, 2.60 or newer: https://learn.microsoft.com/cli/azure/install-azure-cli"
    return
  fi
  version=$(az version --query '"azure-cli"' --output tsv 2>/dev/null | tr -d '\r') || version=''
  major=${version%%.*}
  minor=${version#*.}
  minor=${minor%%.*}
  case $major$minor in
    '' | *[!0-9]*) need "an Azure CLI that can tell its version: az version" ;;
    *) if [ "$major" -lt 2 ] || { [ "$major" -eq 2 ] && [ "$minor" -lt 60 ]; }; then
         need "Azure CLI 2.60 or newer, this one is $version: az upgrade" # Flex Consumption, uploads by Entra token
       fi ;;
  esac
  if ! subscription=$(az account show --query '[name, id]' --output tsv 2>/dev/null | tr -d '\r' | tr '\n' ' '); then
    need "a login: az login, and az account set --subscription NAME if there are several"
  fi
}

# matches tells whether ACTION matches a comma-separated list, in which * stands for anything.
matches() { # ACTION LIST
  local pattern found=1 IFS=,
  shopt -s nocasematch
  for pattern in $2; do
    # shellcheck disable=SC2053 # it is a pattern
    if [[ $1 == $pattern ]]; then found=0; fi
  done
  shopt -u nocasematch
  return $found
}

# need_rights asks for the caller's rights in the group. Each line is one of the caller's roles:
# "actions|exceptions".
need_rights() {
  local rights action granted actions exceptions
  if ! rights=$(az rest --method get --output tsv \
    --url "/subscriptions/{subscriptionId}/resourceGroups/$group/providers/Microsoft.Authorization/permissions?api-version=2022-04-01" \
    --query "value[].join('|', [join(',', actions), join(',', notActions)])" | tr -d '\r'); then
    need "the right to see the permissions on the resource group $group: the role Contributor there, at least"
    return
  fi
  for action in Microsoft.Resources/deployments/write Microsoft.Web/sites/write Microsoft.Storage/storageAccounts/write \
    Microsoft.Authorization/roleAssignments/write; do
    granted=false
    while IFS='|' read -r actions exceptions; do
      if matches "$action" "$actions" && ! matches "$action" "$exceptions"; then granted=true; fi
    done <<<"$rights"
    if [ $granted = false ]; then
      case $action in
        *roleAssignments*) need "$action on $group: the role Owner, or Role Based Access Control Administrator beside Contributor" ;;
        *) need "$action on $group: the role Contributor" ;;
      esac
    fi
  done
}

# ask_group finds out whether the group exists.
ask_group() {
  if ! there=$(az group exists --name "$group" --output json | tr -d '\r'); then
    need "the right to see whether the resource group $group exists: the role Reader on it, at least"
  fi
}

# --- --destroy ------------------------------------------------------------------------------------

destroy_group() {
  local tag typed=''
  need_az
  report_missing
  ask_group
  report_missing
  say "subscription: $subscription"
  if [ "$there" != true ]; then
    say "there is no resource group $group: nothing to delete"
    exit 0
  fi
  tag=$(az group show --name "$group" --query "tags.\"$tag_name\"" --output tsv | tr -d '\r') ||
    die $unexpected "the resource group $group cannot be read"
  say "in the resource group $group:"
  az resource list --resource-group "$group" --query '[].[type, name]' --output tsv >&2 ||
    die $unexpected "the resource group $group cannot be read"
  if [ "$yes" = true ] && [ "$tag" != $tag_value ]; then
    die $declined "this script did not make $group (it has no tag $tag_name=$tag_value), so it may hold more than tiney:" \
      "run it without --yes, and type the name"
  fi
  if [ "$yes" = false ]; then
    if [ "$tag" != $tag_value ]; then
      say "this script did not make $group (it has no tag $tag_name=$tag_value): look whether all of it may go"
    fi
    printf 'All of it goes, and every short link with it. Type the name of the group to delete it: ' >&2
    read -r typed || say ""
    if [ "$typed" != "$group" ]; then
      die $declined "nothing was deleted"
    fi
  fi
  az group delete --name "$group" --yes >&2 || die $not_deleted "$group was not deleted, or not all of it; see above"
  say "deleted $group. What Azure keeps for a while, and at no cost:"
  say "  - the Log Analytics workspace, 14 days: creating it again under its name brings its data back"
  say "  - storage accounts, up to 14 days, for a recovery from the portal"
  say "DNS records that point to the site are yours to remove: left behind, they let a stranger take the name."
}

if [ "$destroy" = true ]; then
  destroy_group
  exit 0
fi

# --- checks ---------------------------------------------------------------------------------------

need_az
if command -v az >/dev/null; then
  bicep=$(az bicep version 2>/dev/null) || need "Bicep for the Azure CLI: az bicep install"
  case $bicep in
    *' 0.'[0-9].* | *' 0.'[12][0-9].* | *' 0.3'[0-2].*) need "Bicep 0.33 or newer: az bicep upgrade" ;;
  esac
fi
if ! command -v curl >/dev/null && [ "$what_if" = false ]; then
  need "curl, to test the site"
fi
if [ -n "$package" ]; then
  [ -f "$package" ] || need "the package $package"
elif [ "$skip_build" = false ] && [ "$what_if" = false ]; then
  command -v go >/dev/null || need "Go 1.26, to build the package: https://go.dev/dl/ (or --package FILE)"
  command -v make >/dev/null || need "make, to build the package (or --package FILE)"
fi
[ -f "$parameters" ] || need "the parameters file $parameters"
there=''
if [ ${#missing[@]} -eq 0 ]; then # only who is logged in can be asked about rights
  ask_group
  if [ "$there" = true ]; then need_rights; fi
fi
report_missing
say "subscription: $subscription"
if [ "$there" != true ] && [ "$what_if" = true ]; then
  die $missing_needs "there is no resource group $group, and a what-if needs one:" \
    "az group create --name $group --location ${location:-canadacentral}"
fi

# --- the package: before anything changes in Azure ------------------------------------------------

if [ "$what_if" = false ] && [ -z "$package" ] && [ "$skip_build" = false ]; then
  say "building the packages"
  make -C "$root" package >&2 || die $build_failed "make package failed; nothing was changed in Azure"
  # internal/tools/pack puts this version into the executable, which reports it at /api/health.
  built=$(git -C "$root" describe --always '--exclude=*' --abbrev=12 --dirty 2>/dev/null) || built=unknown
fi

# --- the resource group ---------------------------------------------------------------------------

if [ "$there" != true ]; then
  confirm "Create the resource group $group in ${location:-canadacentral}?" || die $declined "nothing was changed"
  az group create --name "$group" --location "${location:-canadacentral}" --tags "$tag_name=$tag_value" --output none ||
    die $deployment_failed "the resource group $group was not created: that takes the role Contributor on the subscription, or" \
      "somebody who has it and creates the group"
  need_rights
  report_missing
fi

# --- what-if and deployment -----------------------------------------------------------------------

child=''
temporary=$(mktemp -d)
leave() {
  if [ -n "$child" ]; then kill -- "-$child" 2>/dev/null || true; fi
  rm -rf "$temporary"
}
trap leave EXIT

template=(--resource-group "$group" --template-file "$root/infra/main.bicep" --parameters "$parameters")
if [ -n "$plan" ]; then template+=(--parameters "plan=$plan"); fi
if [ -n "$location" ]; then template+=(--parameters "location=$location"); fi
hosts=''
if [ "$there" = true ]; then
  certified=''
  hosts=$(az rest --method get --output tsv --url "$sites?api-version=2025-03-01" \
    --query "value[].join('|', [name, properties.defaultHostName, join(',', properties.hostNameSslStates[?sslState=='SniEnabled'].name)])" | tr -d '\r') ||
    # In a subscription that never had a site, the provider is not registered. The deployment will
    # register it.
    [ "$(az provider show --namespace Microsoft.Web --query registrationState --output tsv | tr -d '\r')" = NotRegistered ] ||
    die $missing_needs "the sites in $group cannot be read; nothing was deployed"
  while IFS='|' read -r site host_name domains; do
    for one in ${domains//,/ }; do certified="$certified${certified:+,}\"$site/$one\""; done
  done <<<"$hosts"
  if [ -n "$certified" ]; then template+=(--parameters "domainsWithCertificate=[$certified]"); fi
fi

# The first deployment makes an admin key, and later ones give the site the same key again. A key
# from --param or the parameters file wins, and so does the empty one, which means that there is
# none. The key reaches az in a file, since other users of this machine see arguments.
setting_of() { # SITE NAME: prints = and the value; nothing if the site has no such setting
  az webapp config appsettings list --resource-group "$group" --name "$1" --output tsv \
    --query "[?name=='$2'].join('', ['=', value])" </dev/null | tr -d '\r'
}

random() { # NUMBER CHARACTERS: prints so many of these characters
  local drawn=''
  IFS= read -r -n "$1" drawn < <(LC_ALL=C tr -dc "$2" </dev/urandom 2>/dev/null) || true
  printf %s "$drawn"
}

key_given=false admin_key='' key_is_new=''
if grep -qi adminKey "$parameters"; then key_given=true; fi
shopt -s nocasematch
for one in ${more[@]+"${more[@]}"}; do
  if [[ $one == adminKey=* ]]; then key_given=true; fi
done
shopt -u nocasematch
if [ $key_given = false ]; then
  key_is_new=true
  while IFS='|' read -r site host_name domains; do
    if [ -n "$site" ] && [ -z "$admin_key" ]; then
      found=$(setting_of "$site" ADMIN_KEY) ||
        die $missing_needs "the admin key of $site cannot be read, and a deployment without it would remove it; nothing was" \
          "deployed. Give it with --param adminKey=KEY, or --param adminKey= for none"
      if [ -n "$found" ]; then key_is_new=''; fi # even if it is empty: somebody wanted none
      admin_key=${found#=}
    fi
  done <<<"$hosts"
  if [ -n "$key_is_new" ]; then
    admin_key=$(random 43 A-Za-z0-9) # 256 bits
    if [ ${#admin_key} -ne 43 ]; then
      die $unexpected "no admin key could be made; nothing was deployed. Give one with --param adminKey=KEY, 32 random characters" \
        "or more"
    fi
  fi
  if [ -n "$admin_key" ]; then
    escaped=${admin_key//\\/\\\\}
    # shellcheck disable=SC2016 # this is a name
    printf '{"$schema":"https://schema.management.azure.com/schemas/2019-04-01/deploymentParameters.json#","contentVersion":"1.0.0.0","parameters":{"adminKey":{"value":"%s"}}}\n' \
      "${escaped//\"/\\\"}" >"$temporary/key.json"
    template+=(--parameters "$temporary/key.json")
  fi
fi
for one in ${more[@]+"${more[@]}"}; do template+=(--parameters "$one"); done

if ! az deployment group what-if "${template[@]}" --no-prompt true --exclude-change-types Ignore NoChange; then
  if [ "$what_if" = true ]; then die $deployment_failed "Azure does not say what would change"; fi
  say "deploy: Azure does not say what would change. If that is the what-if's own fault, the deployment works all the same; if" \
    "not, it is refused before it changes anything"
fi
if [ "$what_if" = true ]; then exit 0; fi
confirm "Deploy this to $group?" || die $declined "nothing was deployed"

healthy() { # ADDRESS: sets seen, what was there, and version
  local code
  code=$(curl --silent --max-time 15 --output "$temporary/health" --write-out '%{http_code}' "$1/api/health") || code=000
  version=''
  case $code in
    000) seen="$1 does not respond" ;;
    200)
      version=$(sed -n 's/.*"version" *: *"\([^"]*\)".*/\1/p' "$temporary/health")
      if ! grep -q '"status" *: *"healthy"' "$temporary/health"; then
        seen="$1/api/health returns something else"
      elif [ -n "$version" ] && { [ "$version" != "${expected:-$version}" ] || [ "$version" = "$replaced" ]; }; then
        seen="$1 still runs version $version"
      else
        return 0
      fi
      ;;
    *) seen="$1/api/health returns $code" ;;
  esac
  return 1
}

# An image's version is known only when it runs. So a site that gets another image has to respond
# with another version than before. Otherwise the old container would pass for the new one.
ran=''
if [ -z "$expected" ]; then
  while IFS='|' read -r site host_name domains; do
    case $site in
      *-image-*)
        image=$(az webapp config show --resource-group "$group" --name "$site" --query linuxFxVersion --output tsv </dev/null |
          tr -d '\r') || continue
        base_url=$(setting_of "$site" BaseUrl) || base_url=''
        base_url=${base_url#=}
        for one in "https://$host_name" "${base_url%/}"; do
          if [ -n "$one" ] && healthy "$one"; then
            ran="$ran$site|${image#DOCKER|}|$version
"
            break
          fi
        done
        ;;
    esac
  done <<<"$hosts"
fi

name=tiney-$(date -u +%Y%m%d-%H%M%S)
say "deploying ($name); a first deployment takes some minutes"
outputs=$(az deployment group create "${template[@]}" --no-prompt true --name "$name" --output tsv \
  --query "[properties.outputs.siteName.value, properties.outputs.plan.value, properties.outputs.defaultHostName.value, properties.outputs.frontDoorHostName.value, properties.outputs.baseUrl.value, properties.outputs.secondSiteName.value, properties.outputs.secondHostName.value, properties.outputs.frontDoorName.value, properties.outputs.image.value, properties.outputs.alertsReachNobody.value, join(' ', properties.outputs.siteDomains.value), properties.outputs.domainVerification.value, properties.outputs.applicationInsightsId.value]" |
  tr -d '\r') ||
  die $deployment_failed "the deployment failed; what failed in it: az deployment operation group list --resource-group $group" \
    "--name $name --query \"[?properties.provisioningState=='Failed'].properties.statusMessage\""
{ read -r site && read -r plan && read -r host_name && read -r front_door_name && read -r base_url && read -r second_site &&
  read -r second_host && read -r front_door && read -r image && read -r alerts_reach_nobody && read -r domains &&
  read -r verification && read -r insights; } <<<"$outputs" ||
  die $unexpected "the deployment did not say what it deployed; its outputs: $outputs"

# Azure takes a domain of a site only if its records are there, which are the same for each. Front
# Door takes any, and approves it by a token of its own.
if [ -n "$front_door" ]; then
  az afd custom-domain list --resource-group "$group" --profile-name "$front_door" --output tsv \
    --query "[].[hostName, domainValidationState, validationProperties.validationToken]" | tr -d '\r' |
    while read -r one state token; do
      records="CNAME $one $front_door_name"
      if [ "$state" != Approved ]; then records="$records, TXT _dnsauth.$one $token"; fi
      say "DNS records of $one, which is $state: $records"
    done || say "deploy: the DNS records of the domains are not known"
elif [ "$plan" != F1 ]; then
  for one in ${domains:-DOMAIN}; do
    say "DNS records of $one: CNAME $one $host_name, TXT asuid.$one $verification"
  done
fi

# The site knows a key that was given, too. The test below signs in with it.
if [ $key_given = true ] && found=$(setting_of "$site" ADMIN_KEY); then admin_key=${found#=}; fi
case $admin_key in @Microsoft.KeyVault*) admin_key='' ;; esac # only the site can look it up

# --- upload ---------------------------------------------------------------------------------------

sites_there=("$site")
if [ -n "$second_site" ]; then sites_there+=("$second_site"); fi

while IFS='|' read -r one was version; do
  if [ "$one" = "$site" ] && [ "$was" != "$image" ]; then replaced=$version; fi
done <<<"$ran"
if [ -z "$image" ]; then # an image has a version of its own
  expected=${expected:-$built}
  if [ -z "$package" ]; then
    case $plan in
      Y1) package=$root/build/tiney-windows-386.zip ;;
      F1) package=$root/build/tiney-webapp-windows-386.zip ;;
      FC1) package=$root/build/tiney-linux-amd64.zip ;;
      B1 | P0v3 | P1v3) package=$root/build/tiney-webapp-windows-amd64.zip ;;
      *) die $unexpected "the deployment says that its plan is $plan, which has no package" ;;
    esac
  fi
  [ -f "$package" ] || die $upload_failed "there is no package $package: run make package, or leave --skip-build out"
fi

# published tells whether az has reported that a Flex Consumption app has its package. After that,
# az waits until the site itself is healthy. If the site accepts requests only from Front Door, that
# wait never ends. The test below checks the site in another way.
published() {
  [ "$plan" = FC1 ] && grep -q -e 'Checking the health of the function app' -e 'Deployment was successful' "$temporary/said"
}

# limited runs COMMAND and ends it after SECONDS, or as soon as it has published. Its output goes to
# the file said, and is shown at its end. It gets a process group of its own, since az is a script
# that starts another process.
limited() { # SECONDS COMMAND...
  local end=$((SECONDS + $1)) status=0
  shift
  set -m
  "$@" </dev/null >"$temporary/said" 2>&1 &
  child=$!
  set +m
  while kill -0 "$child" 2>/dev/null; do
    if published || [ $SECONDS -ge $end ]; then
      status=124
      kill -- "-$child" 2>/dev/null || true
      break
    fi
    sleep "$interval"
  done
  if [ $status -eq 124 ]; then wait "$child" 2>/dev/null || true; else wait "$child" || status=$?; fi
  child=''
  cat "$temporary/said" >&2
  return $status
}

upload() { # SECONDS
  local status=0
  : >"$temporary/said"
  case $plan in
    Y1 | FC1)
      limited "$1" az functionapp deployment source config-zip --resource-group "$group" --name "$site" \
        --src "$package" --timeout "$1" --output none || status=$?
      ;;
    *)
      limited "$1" az webapp deploy --resource-group "$group" --name "$site" --src-path "$package" \
        --type zip --restart true --output none || status=$?
      ;;
  esac
  if published; then return 0; fi
  if [ $status -eq 124 ]; then
    say "deploy: no end within the time for it"
    # Most likely it waits as described above, but has said so in other words. The version tells
    # whether the package is there, if a version is known and only one site can have it.
    if [ "$plan" = FC1 ] && [ -n "$expected" ] && [ ${#sites_there[@]} -eq 1 ]; then return 0; fi
  fi
  return $status
}

for site in "${sites_there[@]}"; do
  if [ -n "$image" ]; then
    say "$site runs $image: nothing to upload"
    continue
  fi
  say "uploading $package to $site"
  end=$((SECONDS + upload_seconds))
  until upload $((end - SECONDS)); do
    sleep "$upload_interval"
    if [ $((end - SECONDS)) -le $((upload_seconds / 10)) ]; then # too little for another try
      die $upload_failed "the package was not uploaded; the site $site is there, so run this again, or see" \
        "az webapp log deployment show --resource-group $group --name $site"
    fi
    say "a new site, and its roles, may need some minutes before it takes a package; trying again"
  done
done
uploaded=$(date -u +%Y-%m-%dT%H:%M:%SZ)

# --- does it respond? -----------------------------------------------------------------------------

# The public address is first, which may be a domain that does not lead to the site yet. Then come
# the name that Azure gave Front Door, and the site's own name, which maybe only Front Door can
# reach.
addresses=("${base_url%/}")
for one in "$front_door_name" "$host_name"; do
  if [ -n "$one" ] && [ "${base_url%/}" != "https://$one" ]; then addresses+=("https://$one"); fi
done

say "waiting until ${addresses[0]}/api/health returns 200${expected:+ with version $expected}${replaced:+ with another version than $replaced}"
address='' seen=''
end=$((SECONDS + wait_seconds))
while [ -z "$address" ]; do
  all=''
  for one in "${addresses[@]}"; do
    if healthy "$one"; then
      address=$one
      break
    fi
    all="$all${all:+; }$seen"
  done
  if [ -z "$address" ]; then
    if [ $SECONDS -ge $end ]; then
      die $no_response "no good response within $wait_seconds seconds; what there was: $all. See Troubleshooting in" \
        "docs/deployment.md"
    fi
    sleep "$interval"
  fi
done
if [ "$address" != "${addresses[0]}" ]; then
  say "the site responds at $address, but ${addresses[0]} does not yet: look at its DNS record and certificate"
fi

# --- does it reap? --------------------------------------------------------------------------------

# await runs a command until it succeeds. If that takes too long, it says what is wrong.
await() { # WRONG COMMAND...
  local wrong=$1 end=$((SECONDS + wait_seconds))
  shift
  until "$@"; do
    if [ $SECONDS -ge $end ]; then die $not_working "$wrong"; fi
    sleep "$interval"
  done
}

# known tells whether the platform knows the reaper, which its timer starts. The platform learns of
# a package's functions when they are synchronized, and an upload may fail to do that.
known() { # SITE
  local functions
  az rest --method post --url "$sites/$1/syncfunctiontriggers?api-version=2025-03-01" --output none || return 1
  functions=$(az rest --method get --url "$sites/$1/functions?api-version=2025-03-01" --query 'value[].name' --output tsv |
    tr -d '\r') || return 1
  grep -q '/reaper$' <<<"$functions"
}

case $plan in
  Y1 | FC1)
    for site in "${sites_there[@]}"; do
      await "the platform does not know the function reaper of $site, so its timer would delete no expired link" known "$site"
    done
    ;;
esac

# --- does it work? --------------------------------------------------------------------------------

# shorten, redirect and ready return 0 if it works, 1 if it may work later, such as when the site's
# new roles have arrived, and 2 if it is wrong.
sign_in() { # prints it for curl, whose arguments other users of this machine see
  local escaped=${admin_key//\\/\\\\}
  if [ -n "$admin_key" ]; then printf 'header = "Authorization: Bearer %s"\n' "${escaped//\"/\\\"}"; fi
}

shorten() {
  local code
  code=$(sign_in | curl --silent --max-time 30 --config - --output "$temporary/link" --write-out '%{http_code}' \
    --header 'Content-Type: application/json' --data "{\"longUrl\":\"$long_url\",\"expiresInSeconds\":60}" \
    "$address/api/shorten") || code=000
  case $code in
    201) ;;
    401)
      if [ -z "$admin_key" ]; then return 0; fi # SHORTEN_ACCESS is owners
      seen="POST /api/shorten refuses the admin key, so the site runs with another one (--param adminKey=KEY sets it)"
      return 1 # its settings may arrive late
      ;;
    000 | 429 | 5??) seen="POST /api/shorten returns $code"; return 1 ;;
    *) seen="POST /api/shorten returns $code"; return 2 ;;
  esac
  alias=$(sed -n 's/.*"alias" *: *"\([A-Za-z0-9_-]*\)".*/\1/p' "$temporary/link")
  if [ -z "$alias" ] || ! grep -qF "\"${base_url%/}/$alias\"" "$temporary/link"; then
    seen="POST /api/shorten does not return a link that starts with $base_url"
    return 2
  fi
}

redirect() {
  local code to
  code=$(curl --silent --max-time 30 --output /dev/null --dump-header "$temporary/headers" --write-out '%{http_code}' \
    "$address/$alias") || code=000
  to=$(tr -d '\r' <"$temporary/headers" | sed -n 's/^[Ll][Oo][Cc][Aa][Tt][Ii][Oo][Nn]: *//p')
  case $code in
    302) if [ "$to" = "$long_url" ]; then return 0; fi; seen="GET /$alias leads to '$to', not to $long_url"; return 2 ;;
    404)
      not_found=$((not_found + 1)) # for a moment that may be a host that has just started, and has no routes yet
      seen="GET /$alias returns 404"
      if [ $not_found -lt 5 ]; then return 1; fi
      return 2
      ;;
    000 | 5??) seen="GET /$alias returns $code"; return 1 ;;
    *) seen="GET /$alias returns $code"; return 2 ;;
  esac
}

ready() {
  local code
  code=$(curl --silent --max-time 15 --output /dev/null --write-out '%{http_code}' "$address/api/ready") || code=000
  seen="GET /api/ready returns $code"
  [ "$code" = 200 ]
}

# Each try has a URL of its own. If the response to a create was lost, the same URL would get a 200
# instead of a 201, and a link that may have expired.
try() {
  long_url=https://example.com/tiney-smoke-test/$(date -u +%Y%m%d%H%M%S)-$RANDOM$RANDOM
  alias=''
  : >"$temporary/headers"
  shorten || return $?
  if [ -n "$alias" ]; then redirect; else ready; fi
}

say "shortening a URL for a minute, and following it"
not_found=0
end=$((SECONDS + wait_seconds))
while true; do
  status=0
  try || status=$?
  if [ $status -eq 0 ]; then break; fi
  if [ $status -eq 2 ] || [ $SECONDS -ge $end ]; then
    die $not_working "the site responds but does not work: $seen. See Troubleshooting in docs/deployment.md"
  fi
  sleep "$interval"
done

# --- does each region work? -----------------------------------------------------------------------

# probed tells whether Front Door has probed a site successfully since the upload. Nothing else can
# tell: the sites accept requests only from Front Door, which sends those of this script to the
# nearer site.
probed() { # HOST
  local well
  # shellcheck disable=SC2016 # these backticks are for az
  well=$(az monitor metrics list --resource "$front_door" --resource-group "$group" --resource-type Microsoft.Cdn/profiles \
    --metric OriginHealthPercentage --interval PT5M --start-time "$uploaded" --filter "Origin eq '*'" --output tsv \
    --query 'value[].timeseries[?max(data[?average].average) > `0`][].metadatavalues[].value') || return 1
  grep -qF "$1" <<<"$well"
}

if [ -n "$second_site" ]; then
  say "waiting until Front Door has found the site of each region well, which takes some minutes"
  for one in "$host_name" "$second_host"; do
    await "Front Door has not found $one well since the upload; the service works at $address" probed "$one"
  done
fi

# --- the release, on the charts of Application Insights -------------------------------------------

annotate() {
  local id
  id=$(random 32 a-f0-9)
  printf '{"Id":"%s-%s-%s-%s-%s","AnnotationName":"%s","EventTime":"%s","Category":"Deployment","Properties":"{}"}\n' \
    "${id:0:8}" "${id:8:4}" "${id:12:4}" "${id:16:4}" "${id:20}" "${version:-$name}" "$uploaded" >"$temporary/annotation"
  az rest --method put --url "$insights/Annotations?api-version=2015-05-01" --body "@$temporary/annotation" --output none
}
annotate || say "deploy: the charts of Application Insights do not show this release"

works='shortens and redirects'
if [ -z "$alias" ]; then works='responds, and so does its storage (only owners may shorten, and no admin key is known, so no link was tried)'; fi
say "done: ${version:+version $version }$works on $plan; alerts, workbook and logs are in the resource group $group"
case $alerts_reach_nobody in [Tt]rue) say "alerts reach nobody: --param alertEmail=you@example.com names somebody, --param alertsEnabled=false saves their cost" ;; esac
# The key itself is not printed: what this script says may be kept in a log.
if [ -n "$admin_key" ]; then
  say "sign in at ${base_url%/}/manage with the ${key_is_new:+new }admin key, which is in the site's setting ADMIN_KEY. This shows it:"
  say "  az webapp config appsettings list --resource-group $group --name ${sites_there[0]} --query \"[?name=='ADMIN_KEY'].value\"" \
    "--output tsv"
else
  say "there is no admin key, or it cannot be read: --param adminKey=KEY sets one, which makes API keys and signs in at" \
    "${base_url%/}/manage"
fi
printf '%s\n' "${base_url%/}"
