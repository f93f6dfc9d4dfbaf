#!/usr/bin/env pwsh
#Requires -Version 7.2
# Takes a resource group to a working shortener, as deploy.sh does, step by step and with the same options. It needs
# neither bash, make nor curl. docs/deployment.md explains both.
#
# Before 7.2, PowerShell made an error of what a program says on stderr where that is redirected, and ended here.
#
# The options are read by hand, so that they are written the same for both scripts. Answers of az are asked for as JSON
# and not by --query: on Windows, az is a batch file, which takes a | in an argument for a pipe.

Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$PSNativeCommandUseErrorActionPreference = $false

$usage = @'
usage: infra/deploy.ps1 -g GROUP [options]

  -g, --resource-group GROUP  the resource group; it is created where it is missing
  -l, --location REGION       the region (default: canadacentral, or what the parameters file says)
      --plan Y1|F1|FC1        the plan (default: what the parameters file says)
      --parameters FILE       values for main.bicep (default: parameters.dev.json for F1, else parameters.prod.json)
      --param NAME=VALUE      one more value for main.bicep; may be repeated
      --package FILE          upload this package, and build none
      --skip-build            upload the package that the last build left in build
      --expect VERSION        the version that has to answer (default: the one that was built; any, where none was)
      --what-if               show what a deployment would change, and end
  -y, --yes                   ask nothing
      --destroy               delete the resource group with all that is in it
  -h, --help                  this text

The subscription is the one of `az account show`. Running it again is safe: it changes what differs.

  TINEY_WAIT=900              seconds to wait for a site that answers, and as long again for one that works
  TINEY_INTERVAL=5            seconds between two tries; between two uploads 30, where it is not set
  TINEY_UPLOAD_WAIT=900       seconds for the upload, all its tries together

exit status: 0 done, 1 unexpected, 2 wrong usage, 3 something needed is missing, 4 declined, 5 the build failed,
6 Azure refused the deployment, 7 the upload failed, 8 the site does not answer, 9 the site answers but does not work,
10 the group could not be deleted
'@

$unexpected = 1
$wrongUsage = 2
$missingNeeds = 3
$declined = 4
$buildFailed = 5
$deploymentFailed = 6
$uploadFailed = 7
$noAnswer = 8
$notWorking = 9
$notDeleted = 10

$root = Split-Path -Parent $PSScriptRoot
$waitSeconds = if ($env:TINEY_WAIT) { [int]$env:TINEY_WAIT } else { 900 }
$interval = if ($env:TINEY_INTERVAL) { [double]$env:TINEY_INTERVAL } else { 5 }
$uploadInterval = if ($env:TINEY_INTERVAL) { $interval } else { 30 }
$uploadSeconds = if ($env:TINEY_UPLOAD_WAIT) { [int]$env:TINEY_UPLOAD_WAIT } else { 900 }

# The group carries this tag where a script made it. Only such a group is deleted without its name being typed, so it is
# no tag that somebody gives a group of their own.
$tagName = 'created-by'
$tagValue = 'tiney-deploy'

function Say([string]$Text) { [Console]::Error.WriteLine($Text) }

function Die([int]$Status, [string]$Text) {
    Say "deploy: $Text"
    exit $Status
}

function Confirm-Step([string]$Question) {
    if ($script:yes) { return $true }
    $answer = Read-Host "$Question [y/N]"
    return $answer -in @('y', 'yes')
}

$group = ''
$location = ''
$plan = ''
$parameters = ''
$package = ''
$expected = ''
$skipBuild = $false
$whatIf = $false
$yes = $false
$destroy = $false
$more = @()

$i = 0
while ($i -lt $args.Count) {
    $option = [string]$args[$i]
    $value = ''
    if ($option -in @('-g', '--resource-group', '-l', '--location', '--plan', '--parameters', '--param', '--package', '--expect')) {
        $i++
        if ($i -ge $args.Count) { Die $wrongUsage "$option needs a value; see --help" }
        $value = @($args[$i]) -join ',' # PowerShell makes a list of what has commas
    }
    switch -CaseSensitive ($option) {
        { $_ -in @('-g', '--resource-group') } { $group = $value }
        { $_ -in @('-l', '--location') } { $location = $value }
        '--plan' { $plan = $value }
        '--parameters' { $parameters = $value }
        '--param' { $more += $value }
        '--package' { $package = $value }
        '--skip-build' { $skipBuild = $true }
        '--expect' { $expected = $value }
        '--what-if' { $whatIf = $true }
        { $_ -in @('-y', '--yes') } { $yes = $true }
        '--destroy' { $destroy = $true }
        { $_ -in @('-h', '--help') } {
            Write-Output $usage
            exit 0
        }
        default { Die $wrongUsage "unknown option $option; see --help" }
    }
    $i++
}

if (-not $group) { Die $wrongUsage '--resource-group is needed; see --help' }
if ($plan -and $plan -cnotmatch '^(Y1|F1|FC1)$') { Die $wrongUsage "--plan is Y1, F1 or FC1, not $plan" }
foreach ($one in $more) {
    # Without the text: it may be half of a value that is no one's business.
    if ($one -notmatch '^[A-Za-z][^=]*=') { Die $wrongUsage '--param takes NAME=VALUE' }
}
if (-not $parameters) {
    $file = if ($plan -eq 'F1') { 'parameters.dev.json' } else { 'parameters.prod.json' }
    $parameters = Join-Path $PSScriptRoot $file
}

# --- what is needed ---------------------------------------------------------------------------------------------------

$missing = @()
$subscription = ''
$there = $false

function Add-Missing([string]$Text) { $script:missing += $Text }

function Test-Command([string]$Name) { return $null -ne (Get-Command $Name -ErrorAction SilentlyContinue) }

function Exit-IfMissing {
    if ($script:missing.Count -gt 0) {
        Say 'deploy: something needed is missing:'
        foreach ($one in $script:missing) { Say "  - $one" }
        exit $missingNeeds
    }
}

function Test-Az {
    if (-not (Test-Command 'az')) {
        Add-Missing 'az, the Azure CLI, 2.60 or newer: https://learn.microsoft.com/cli/azure/install-azure-cli'
        return
    }
    $said = az version --output json 2>$null
    if ($LASTEXITCODE -ne 0) {
        Add-Missing 'an Azure CLI that can tell its version: az version'
    }
    else {
        $version = ($said | ConvertFrom-Json).'azure-cli'
        # Flex Consumption, uploads by Entra token.
        if ([version]($version -replace '[^0-9.].*$', '') -lt [version]'2.60') {
            Add-Missing "Azure CLI 2.60 or newer, this one is ${version}: az upgrade"
        }
    }
    $said = az account show --output json 2>$null
    if ($LASTEXITCODE -ne 0) {
        Add-Missing 'a login: az login, and az account set --subscription NAME where there are several'
    }
    else {
        $account = $said | ConvertFrom-Json
        $script:subscription = "$($account.name) $($account.id)"
    }
}

# Test-Listed tells whether an action is one of a list, in which * stands for anything.
function Test-Listed([string]$Action, [object[]]$List) {
    foreach ($pattern in $List) {
        if ($Action -like $pattern) { return $true }
    }
    return $false
}

# Test-Rights asks what the caller may do in the group: a list of actions and exceptions for each of the caller's roles.
function Test-Rights {
    $said = az rest --method get --output json --url "/subscriptions/{subscriptionId}/resourceGroups/$group/providers/Microsoft.Authorization/permissions?api-version=2022-04-01"
    if ($LASTEXITCODE -ne 0) {
        Add-Missing "the right to see the permissions on the resource group ${group}: the role Contributor there, at least"
        return
    }
    $rights = @(($said | ConvertFrom-Json).value)
    foreach ($action in @('Microsoft.Resources/deployments/write', 'Microsoft.Web/sites/write', 'Microsoft.Storage/storageAccounts/write', 'Microsoft.Authorization/roleAssignments/write')) {
        $granted = $false
        foreach ($right in $rights) {
            if ((Test-Listed $action $right.actions) -and -not (Test-Listed $action $right.notActions)) { $granted = $true }
        }
        if (-not $granted) {
            if ($action -like '*roleAssignments*') {
                Add-Missing "$action on ${group}: the role Owner, or Role Based Access Control Administrator beside Contributor"
            }
            else {
                Add-Missing "$action on ${group}: the role Contributor"
            }
        }
    }
}

# Test-Group finds out whether the group is there.
function Test-Group {
    $said = az group exists --name $group --output json
    if ($LASTEXITCODE -ne 0) {
        Add-Missing "the right to see whether the resource group $group exists: the role Reader on it, at least"
    }
    else {
        $script:there = "$said".Trim() -eq 'true'
    }
}

# --- --destroy --------------------------------------------------------------------------------------------------------

function Remove-Group {
    Test-Az
    Exit-IfMissing
    Test-Group
    Exit-IfMissing
    Say "subscription: $subscription"
    if (-not $script:there) {
        Say "there is no resource group ${group}: nothing to delete"
        exit 0
    }
    $said = az group show --name $group --output json
    if ($LASTEXITCODE -ne 0) { Die $unexpected "the resource group $group cannot be read" }
    $tags = ($said | ConvertFrom-Json -AsHashtable)['tags']
    $ours = $null -ne $tags -and $tags[$tagName] -eq $tagValue
    Say "in the resource group ${group}:"
    $said = az resource list --resource-group $group --output json
    if ($LASTEXITCODE -ne 0) { Die $unexpected "the resource group $group cannot be read" }
    foreach ($resource in @($said | ConvertFrom-Json)) { Say "$($resource.type) $($resource.name)" }
    if ($yes -and -not $ours) {
        Die $declined "this script did not make $group (it has no tag $tagName=$tagValue), so it may hold more than tiney: run it without --yes, and type the name"
    }
    if (-not $yes) {
        if (-not $ours) {
            Say "this script did not make $group (it has no tag $tagName=$tagValue): look whether all of it may go"
        }
        $typed = Read-Host 'All of it goes, and every short link with it. Type the name of the group to delete it'
        if ($typed -cne $group) { Die $declined 'nothing was deleted' }
    }
    az group delete --name $group --yes
    if ($LASTEXITCODE -ne 0) { Die $notDeleted "$group was not deleted, or not all of it; see above" }
    Say "deleted $group. What Azure keeps for a while, and at no cost:"
    Say '  - the Log Analytics workspace, 14 days: creating it again under its name brings its data back'
    Say '  - storage accounts, up to 14 days, for a recovery from the portal'
    Say 'DNS records that point to the site are yours to remove: left behind, they let a stranger take the name.'
}

if ($destroy) {
    Remove-Group
    exit 0
}

# --- checks -----------------------------------------------------------------------------------------------------------

Test-Az
if (Test-Command 'az') {
    $null = az bicep version 2>$null
    if ($LASTEXITCODE -ne 0) { Add-Missing 'Bicep for the Azure CLI: az bicep install' }
}
if ($package) {
    if (-not (Test-Path -LiteralPath $package -PathType Leaf)) { Add-Missing "the package $package" }
}
elseif (-not $skipBuild -and -not $whatIf) {
    if (-not (Test-Command 'go')) { Add-Missing 'Go 1.26, to build the package: https://go.dev/dl/ (or --package FILE)' }
}
if (-not (Test-Path -LiteralPath $parameters -PathType Leaf)) { Add-Missing "the parameters file $parameters" }
if ($missing.Count -eq 0) {
    # Only who is logged in can be asked about rights.
    Test-Group
    if ($there) { Test-Rights }
}
Exit-IfMissing
Say "subscription: $subscription"
$newLocation = if ($location) { $location } else { 'canadacentral' }
if (-not $there -and $whatIf) {
    Die $missingNeeds "there is no resource group $group, and a what-if needs one: az group create --name $group --location $newLocation"
}

# --- the package: before anything changes in Azure --------------------------------------------------------------------

if (-not $whatIf -and -not $package -and -not $skipBuild) {
    Say 'building the packages'
    Push-Location $root
    try {
        # What `make package` does: see the Makefile.
        $builds = @(
            '-os linux -arch amd64 -zip build/tiney-linux-amd64.zip'
            '-os windows -arch 386 -zip build/tiney-windows-386.zip'
            '-os windows -arch 386 -webapp -zip build/tiney-webapp-windows-386.zip'
        )
        foreach ($one in $builds) {
            go run ./internal/pack/cmd @($one -split ' ')
            if ($LASTEXITCODE -ne 0) { Die $buildFailed 'the build failed; nothing was changed in Azure' }
        }
        # What internal/pack puts into the executable, which tells it at /api/health.
        if (-not $expected) {
            $expected = 'unknown'
            if (Test-Command 'git') {
                $said = git describe --always '--exclude=*' '--abbrev=12' --dirty 2>$null
                if ($LASTEXITCODE -eq 0) { $expected = "$said".Trim() }
            }
        }
    }
    finally {
        Pop-Location
    }
}

# --- the resource group -----------------------------------------------------------------------------------------------

if (-not $there) {
    if (-not (Confirm-Step "Create the resource group $group in ${newLocation}?")) { Die $declined 'nothing was changed' }
    az group create --name $group --location $newLocation --tags "$tagName=$tagValue" --output none
    if ($LASTEXITCODE -ne 0) {
        Die $deploymentFailed "the resource group $group was not created: that takes the role Contributor on the subscription, or somebody who has it and creates the group"
    }
    Test-Rights
    Exit-IfMissing
}

# --- what-if and deployment -------------------------------------------------------------------------------------------

$template = @('--resource-group', $group, '--template-file', (Join-Path $PSScriptRoot 'main.bicep'), '--parameters', $parameters)
if ($plan) { $template += @('--parameters', "plan=$plan") }
if ($location) { $template += @('--parameters', "location=$location") }
foreach ($one in $more) { $template += @('--parameters', $one) }

az deployment group what-if @template --no-prompt true --exclude-change-types Ignore NoChange
if ($LASTEXITCODE -ne 0) { Die $deploymentFailed 'Azure refuses this deployment; nothing was deployed' }
if ($whatIf) { exit 0 }
if (-not (Confirm-Step "Deploy this to ${group}?")) { Die $declined 'nothing was deployed' }

$name = 'tiney-' + [DateTime]::UtcNow.ToString('yyyyMMdd-HHmmss')
Say "deploying ($name); a first deployment takes some minutes"
$said = az deployment group create @template --no-prompt true --name $name --output json
if ($LASTEXITCODE -ne 0) {
    Die $deploymentFailed "the deployment failed; what failed in it: az deployment operation group list --resource-group $group --name $name"
}
$outputs = ($said | ConvertFrom-Json).properties.outputs
$site = $outputs.siteName.value
$plan = $outputs.plan.value
$hostName = $outputs.defaultHostName.value
$frontDoorName = $outputs.frontDoorHostName.value
$baseUrl = $outputs.baseUrl.value.TrimEnd('/')

# --- upload -----------------------------------------------------------------------------------------------------------

if (-not $package) {
    $file = switch -CaseSensitive ($plan) {
        'Y1' { 'tiney-windows-386.zip' }
        'F1' { 'tiney-webapp-windows-386.zip' }
        'FC1' { 'tiney-linux-amd64.zip' }
        default { Die $unexpected "the deployment says that its plan is $plan, which has no package" }
    }
    $package = Join-Path $root 'build' $file
}
if (-not (Test-Path -LiteralPath $package -PathType Leaf)) {
    Die $uploadFailed "there is no package ${package}: leave --skip-build out"
}

# Test-Published tells whether az has said that a Flex Consumption app has its package. It goes on then until the host's
# own address answers it well: for ever, where only Front Door gets an answer there. The test below knows better.
function Test-Published([string]$Said) {
    return $plan -eq 'FC1' -and $Said -match 'Checking the health of the function app|Deployment was successful'
}

# Read-Said returns what is in a file so far. It may be empty, or still be written to.
function Read-Said([string]$File) { return [string](Get-Content -LiteralPath $File -Raw) }

# Invoke-Limited runs az and ends it after so many seconds, or as soon as it has published. It tells whether the site has
# the package, and shows at the end what az has said.
function Invoke-Limited([int]$Seconds, [string[]]$Arguments) {
    $az = (Get-Command az -CommandType Application | Select-Object -First 1).Source
    $quoted = @($Arguments | ForEach-Object { if ($_ -match '\s') { '"' + $_ + '"' } else { $_ } })
    $file = (New-TemporaryFile).FullName
    try {
        $process = Start-Process -FilePath $az -ArgumentList $quoted -NoNewWindow -PassThru -RedirectStandardError $file
        $null = $process.Handle # without it there is no exit code later
        $last = [DateTime]::UtcNow.AddSeconds($Seconds)
        $late = $false
        while (-not $process.WaitForExit([int]($interval * 1000))) {
            $late = [DateTime]::UtcNow -ge $last
            if ($late -or (Test-Published (Read-Said $file))) {
                $process.Kill($true)
                $process.WaitForExit()
                break
            }
        }
        $said = Read-Said $file
    }
    finally {
        Remove-Item -LiteralPath $file -ErrorAction SilentlyContinue
    }
    if ($said) { Say $said.TrimEnd() }
    if (Test-Published $said) { return $true }
    if ($late) {
        Say 'deploy: no end within the time for it'
        # Most likely it waits as described above, in other words. Whether the package is there, its version will tell.
        return $plan -eq 'FC1'
    }
    return $process.ExitCode -eq 0
}

function Send-Package([int]$Seconds) {
    if ($plan -ne 'F1') {
        return Invoke-Limited $Seconds @('functionapp', 'deployment', 'source', 'config-zip', '--resource-group', $group, '--name', $site, '--src', $package, '--timeout', "$Seconds", '--output', 'none')
    }
    return Invoke-Limited $Seconds @('webapp', 'deploy', '--resource-group', $group, '--name', $site, '--src-path', $package, '--type', 'zip', '--restart', 'true', '--output', 'none')
}

Say "uploading $package to $site"
$end = [DateTime]::UtcNow.AddSeconds($uploadSeconds)
while (-not (Send-Package ($end - [DateTime]::UtcNow).TotalSeconds)) {
    Start-Sleep -Milliseconds ($uploadInterval * 1000)
    if (($end - [DateTime]::UtcNow).TotalSeconds -le $uploadSeconds / 10) {
        # Too little for another try.
        Die $uploadFailed "the package was not uploaded; the site $site is there, so run this again, or see az webapp log deployment show --resource-group $group --name $site"
    }
    Say 'a new site, and its roles, may need some minutes before it takes a package; trying again'
}

# --- does it answer? --------------------------------------------------------------------------------------------------

# By its public address first, which may be a domain that is yet to be pointed at it, then by the name that Azure gave
# Front Door, and then by the site's own, which may be locked to Front Door.
$addresses = @($baseUrl)
foreach ($one in @($frontDoorName, $hostName)) {
    if ($one -and $baseUrl -ne "https://$one") { $addresses += "https://$one" }
}

$handler = [System.Net.Http.HttpClientHandler]::new()
$handler.AllowAutoRedirect = $false
$client = [System.Net.Http.HttpClient]::new($handler)
$client.Timeout = [TimeSpan]::FromSeconds(30)

# Send-Request returns the status (0 where nothing answers), the body and the Location.
function Send-Request([string]$Url, [string]$Body) {
    try {
        if ($Body) {
            $content = [System.Net.Http.StringContent]::new($Body, [System.Text.Encoding]::UTF8, 'application/json')
            $response = $client.PostAsync($Url, $content).GetAwaiter().GetResult()
        }
        else {
            $response = $client.GetAsync($Url).GetAwaiter().GetResult()
        }
        $to = if ($response.Headers.Location) { $response.Headers.Location.OriginalString } else { '' }
        $text = $response.Content.ReadAsStringAsync().GetAwaiter().GetResult()
        return @{ Status = [int]$response.StatusCode; Body = $text; Location = $to }
    }
    catch {
        return @{ Status = 0; Body = ''; Location = '' }
    }
}

# ConvertFrom-Answer returns the fields of a JSON object, and none for anything else.
function ConvertFrom-Answer([string]$Body) {
    try {
        $fields = ConvertFrom-Json $Body -AsHashtable
        if ($fields -is [System.Collections.IDictionary]) { return $fields }
    }
    catch {
        Write-Verbose 'not JSON'
    }
    return @{}
}

$seen = ''
$version = ''

function Test-Health([string]$Url) {
    $answer = Send-Request "$Url/api/health" ''
    $script:version = ''
    if ($answer.Status -eq 0) {
        $script:seen = "$Url does not answer"
        return $false
    }
    if ($answer.Status -ne 200) {
        $script:seen = "$Url/api/health answers $($answer.Status)"
        return $false
    }
    $fields = ConvertFrom-Answer $answer.Body
    $script:version = [string]$fields['version']
    if ($fields['status'] -cne 'healthy') {
        $script:seen = "$Url/api/health is answered by something else"
        return $false
    }
    if ($expected -and $script:version -and $script:version -cne $expected) {
        $script:seen = "$Url still runs version $script:version"
        return $false
    }
    return $true
}

Say "waiting until $($addresses[0])/api/health answers$(if ($expected) { " with version $expected" })"
$address = ''
$end = [DateTime]::UtcNow.AddSeconds($waitSeconds)
while (-not $address) {
    $all = @()
    foreach ($one in $addresses) {
        if (Test-Health $one) {
            $address = $one
            break
        }
        $all += $seen
    }
    if (-not $address) {
        if ([DateTime]::UtcNow -ge $end) {
            Die $noAnswer "no good answer within $waitSeconds seconds; what there was: $($all -join '; '). See Troubleshooting in docs/deployment.md"
        }
        Start-Sleep -Milliseconds ($interval * 1000)
    }
}
if ($address -ne $addresses[0]) {
    Say "the site answers at $address, but $($addresses[0]) does not yet: look at its DNS record and certificate"
}

# --- does it work? ----------------------------------------------------------------------------------------------------

$longUrl = ''
$alias = ''
$notFound = 0

# Test-Shorten and Test-Redirect return 0: works; 1: may work later, such as when the site's new roles have arrived; 2: wrong.
function Test-Shorten {
    $answer = Send-Request "$address/api/shorten" "{`"longUrl`":`"$longUrl`",`"expiresInSeconds`":60}"
    if ($answer.Status -ne 201) {
        $script:seen = "POST /api/shorten answers $($answer.Status)"
        if ($answer.Status -eq 0 -or $answer.Status -ge 500) { return 1 }
        return 2
    }
    $fields = ConvertFrom-Answer $answer.Body
    $script:alias = [string]$fields['alias']
    if (-not $script:alias -or $fields['shortUrl'] -cne "$baseUrl/$script:alias") {
        $script:seen = "POST /api/shorten does not answer with a link that starts with $baseUrl"
        return 2
    }
    return 0
}

function Test-Redirect {
    $answer = Send-Request "$address/$alias" ''
    if ($answer.Status -eq 302) {
        if ($answer.Location -ceq $longUrl) { return 0 }
        $script:seen = "GET /$alias leads to '$($answer.Location)', not to $longUrl"
        return 2
    }
    $script:seen = "GET /$alias answers $($answer.Status)"
    if ($answer.Status -eq 404) {
        $script:notFound++ # for a moment that may be a host that has just started, and has no routes yet
        if ($script:notFound -lt 5) { return 1 }
    }
    if ($answer.Status -eq 0 -or $answer.Status -ge 500) { return 1 }
    return 2
}

# Each try has a URL of its own. One whose link was made while its answer was lost would get a 200, and a link lives for a
# minute only.
function Test-Link {
    $script:longUrl = 'https://example.com/tiney-smoke-test/' + [DateTime]::UtcNow.ToString('yyyyMMddHHmmss') + '-' + [Guid]::NewGuid().ToString('N')
    $status = Test-Shorten
    if ($status -ne 0) { return $status }
    return Test-Redirect
}

Say 'shortening a URL for a minute, and following it'
$end = [DateTime]::UtcNow.AddSeconds($waitSeconds)
while ($true) {
    $status = Test-Link
    if ($status -eq 0) { break }
    if ($status -eq 2 -or [DateTime]::UtcNow -ge $end) {
        Die $notWorking "the site answers, but does not work: $seen. See Troubleshooting in docs/deployment.md"
    }
    Start-Sleep -Milliseconds ($interval * 1000)
}

Say "done: $(if ($version) { "version $version " })shortens and redirects on $plan; alerts, workbook and logs are in the resource group $group"
Write-Output $baseUrl
