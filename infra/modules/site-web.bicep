// F1, B1, P0v3 and P1v3: a web app, in which the executable runs on its own, without the Functions
// host. On Windows, httpPlatformHandler starts it according to the web.config in its package. On
// Linux, it runs in a container. It reaps on its own timer as long as the platform keeps it
// running. The Free plan does not promise that.

@description('Name of the web app.')
param name string

@description('Name of the plan.')
param planName string

@description('The plan: F1, B1, P0v3 or P1v3.')
param sku string

@description('A container image, which runs on Linux. Empty: a package, which runs on Windows.')
param image string

@description('The package\'s URL, or 1 for one that is uploaded.')
param package string

@description('Whether the instances are spread over zones.')
param zoneRedundant bool

@description('How many instances there may be. 1: their number does not change by itself.')
param maximumInstanceCount int

@description('The Azure region.')
param location string

@description('Tags of the resources.')
param tags object

@description('Resource ID of the identity.')
param identityId string

@description('Client ID of the identity.')
param clientId string

@description('The handler\'s settings.')
@secure()
param settings object

@description('BaseUrl, or empty.')
param baseUrl string

@description('Who may call. Empty: all.')
param accessRestrictions array

@description('What happens to all others: Allow or Deny.')
param accessOtherwise string

@description('The Application Insights component.')
param applicationInsightsName string

@description('The Log Analytics workspace.')
param workspaceId string

var isFree = sku == 'F1'
var isContainer = !empty(image)
var leastInstances = zoneRedundant ? 2 : 1

// After one instance was removed, the others must not get so busy that another one is started. So
// twice the lower limit is below the upper one.
var rules = [
  {
    direction: 'Increase'
    operator: 'GreaterThan'
    percent: 70
    window: 'PT5M'
  }
  {
    direction: 'Decrease'
    operator: 'LessThan'
    percent: 30
    window: 'PT15M'
  }
]

// The rules set the number of instances. So it is set here only where that is necessary.
resource servicePlan 'Microsoft.Web/serverfarms@2025-03-01' = {
  name: planName
  location: location
  tags: tags
  kind: isContainer ? 'linux' : 'app'
  sku: union(
    {
      name: sku
    },
    zoneRedundant
      ? {
          capacity: leastInstances
        }
      : {}
  )
  properties: {
    reserved: isContainer
    zoneRedundant: zoneRedundant
  }
}

resource autoscale 'Microsoft.Insights/autoscaleSettings@2022-10-01' = if (startsWith(sku, 'P')) {
  name: '${planName}-processors'
  location: location
  tags: tags
  properties: {
    enabled: true
    targetResourceUri: servicePlan.id
    profiles: [
      {
        name: 'processors'
        capacity: {
          minimum: string(leastInstances)
          maximum: string(max(maximumInstanceCount, leastInstances))
          default: string(leastInstances)
        }
        rules: map(rules, rule => {
          metricTrigger: {
            metricName: 'CpuPercentage'
            metricResourceUri: servicePlan.id
            timeGrain: 'PT1M'
            statistic: 'Average'
            timeWindow: rule.window
            timeAggregation: 'Average'
            operator: rule.operator
            threshold: rule.percent
          }
          scaleAction: {
            direction: rule.direction
            type: 'ChangeCount'
            value: '1'
            cooldown: 'PT5M'
          }
        })
      }
    ]
  }
}

resource site 'Microsoft.Web/sites@2025-03-01' = {
  name: name
  location: location
  tags: tags
  kind: isContainer ? 'app,linux,container' : 'app'
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identityId}': {}
    }
  }
  properties: {
    serverFarmId: servicePlan.id
    httpsOnly: true
    clientAffinityEnabled: false
    siteConfig: union(
      {
        use32BitWorkerProcess: isFree
        alwaysOn: !isFree
        // If there may be several instances, requests go to those to which storage responds. If
        // storage has not responded to an instance for an hour, the instance is replaced, which costs
        // its cache. On F1, where there is no other instance, that would help nobody.
        healthCheckPath: isFree ? '/api/health' : '/api/ready'
        minTlsVersion: '1.2'
        scmMinTlsVersion: '1.2'
        ftpsState: 'Disabled'
        http20Enabled: true
        ipSecurityRestrictions: accessRestrictions
        ipSecurityRestrictionsDefaultAction: accessOtherwise
        scmIpSecurityRestrictionsUseMain: false
      },
      isContainer
        ? {
            linuxFxVersion: 'DOCKER|${image}'
            // A registry of Azure accepts the identity. Any other registry has to let anybody read the
            // image.
            acrUseManagedIdentityCreds: contains(image, '.azurecr.')
            acrUserManagedIdentityID: clientId
          }
        : {}
    )
  }
}

module siteSettings 'site-settings.bicep' = {
  name: '${name}-settings'
  params: {
    siteName: site.name
    // AzureWebJobsStorage belongs to the Functions host. The handler itself has its two
    // connections.
    settings: union(
      settings,
      isContainer
        ? {
            WEBSITES_PORT: '8080' // the port on which the image listens
            // The image's own limit is for a container with less memory than these plans have.
            GOMEMLIMIT: sku == 'B1' ? '1GiB' : sku == 'P0v3' ? '3GiB' : '6GiB'
          }
        : {
            // As on Y1, a zip is mounted, since a running handler.exe cannot be overwritten.
            WEBSITE_RUN_FROM_PACKAGE: package
          }
    )
    baseUrl: baseUrl
    applicationInsightsName: applicationInsightsName
  }
}

// Function apps log to Application Insights, and the platform's logs would have each line of the
// host once more, unsampled. AppServiceHTTPLogs has the client's address and the alias of each
// request, so it stays off.
resource platformLogs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'platform'
  scope: site
  properties: {
    workspaceId: workspaceId
    logs: [
      {
        category: 'AppServiceHTTPLogs'
        enabled: false
      }
      {
        category: 'AppServiceConsoleLogs'
        enabled: true
      }
      {
        category: 'AppServicePlatformLogs'
        enabled: true
      }
    ]
  }
}

@description('Resource ID of the web app.')
output siteId string = site.id

@description('The host name that Azure gave the site.')
output defaultHostName string = siteSettings.outputs.defaultHostName

@description('What the TXT record asuid.DOMAIN of a domain has to have.')
output domainVerification string = siteSettings.outputs.domainVerification

@description('BaseUrl, as it was set.')
output baseUrl string = siteSettings.outputs.baseUrl
