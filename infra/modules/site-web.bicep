// F1: a web app on a Free plan. That plan takes no function app, so the executable runs on its own: httpPlatformHandler
// starts it, by the web.config in its package. It reaps by a clock of its own, as long as the platform keeps it running.

@description('Name of the web app.')
param name string

@description('Name of the plan.')
param planName string

@description('The Azure region.')
param location string

@description('Tags of the resources.')
param tags object

@description('Resource ID of the identity.')
param identityId string

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

resource servicePlan 'Microsoft.Web/serverfarms@2025-03-01' = {
  name: planName
  location: location
  tags: tags
  sku: {
    name: 'F1'
    tier: 'Free'
  }
  properties: {}
}

resource site 'Microsoft.Web/sites@2025-03-01' = {
  name: name
  location: location
  tags: tags
  kind: 'app'
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
    siteConfig: {
      use32BitWorkerProcess: true
      alwaysOn: false
      healthCheckPath: '/api/health'
      minTlsVersion: '1.2'
      scmMinTlsVersion: '1.2'
      ftpsState: 'Disabled'
      http20Enabled: true
      ipSecurityRestrictions: accessRestrictions
      ipSecurityRestrictionsDefaultAction: accessOtherwise
      scmIpSecurityRestrictionsUseMain: false
    }
  }
}

module siteSettings 'site-settings.bicep' = {
  name: '${name}-settings'
  params: {
    siteName: site.name
    // AzureWebJobsStorage is the Functions host's: the handler itself has its two connections.
    settings: union(settings, {
      // As on Y1: a zip is mounted as it is, for a handler.exe that runs cannot be written over.
      WEBSITE_RUN_FROM_PACKAGE: '1'
    })
    baseUrl: baseUrl
    applicationInsightsName: applicationInsightsName
  }
}

// Function apps have their logs in Application Insights: the platform's would be each line of the host once more, unsampled.
resource platformLogs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'platform'
  scope: site
  properties: {
    workspaceId: workspaceId
    logs: [
      {
        category: 'AppServiceHTTPLogs'
        enabled: true
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

@description('BaseUrl, as it was set.')
output baseUrl string = siteSettings.outputs.baseUrl
