// The resources that store logs and telemetry, and the recipient of alerts.

@description('Name of the Application Insights component.')
param name string

@description('Name of the Log Analytics workspace.')
param workspaceName string

@description('The Azure region.')
param location string

@description('Tags of the resources.')
param tags object

@description('Days that data is kept.')
param retentionDays int

@description('Gigabytes taken per day.')
param dailyCapGB int

@description('The identity that sends telemetry.')
param principalId string

@description('Who gets the alerts. Empty: nobody.')
param alertEmail string

var roles = {
  'Monitoring Metrics Publisher': '3913510d-42f4-4e42-8a64-420c390055eb'
}

resource workspace 'Microsoft.OperationalInsights/workspaces@2025-07-01' = {
  name: workspaceName
  location: location
  tags: tags
  properties: {
    sku: {
      name: 'PerGB2018'
    }
    retentionInDays: retentionDays
    workspaceCapping: {
      dailyQuotaGb: dailyCapGB
    }
    features: {
      enableLogAccessUsingOnlyResourcePermissions: true
    }
  }
}

resource component 'Microsoft.Insights/components@2020-02-02' = {
  name: name
  location: location
  tags: tags
  kind: 'web'
  properties: {
    Application_Type: 'web'
    WorkspaceResourceId: workspace.id
    IngestionMode: 'LogAnalytics'
    // Nobody can send with the instrumentation key alone. The host and the handler send with a
    // token (APPLICATIONINSIGHTS_AUTHENTICATION_STRING).
    DisableLocalAuth: true
  }
}

resource componentRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for role in items(roles): {
    name: guid(component.id, principalId, role.value)
    scope: component
    properties: {
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role.value)
      principalId: principalId
      principalType: 'ServicePrincipal'
    }
  }
]

resource actionGroup 'Microsoft.Insights/actionGroups@2023-01-01' = if (!empty(alertEmail)) {
  name: '${name}-alerts'
  location: 'global'
  tags: tags
  properties: {
    enabled: true
    groupShortName: 'tiney'
    emailReceivers: [
      {
        name: 'e-mail'
        emailAddress: alertEmail
        useCommonAlertSchema: true
      }
    ]
  }
}

@description('Name of the component.')
output applicationInsightsName string = component.name

@description('Resource ID of the component.')
output applicationInsightsId string = component.id

@description('Resource ID of the workspace.')
output workspaceId string = workspace.id

@description('Resource ID of the action group. Empty: there is none.')
output actionGroupId string = empty(alertEmail) ? '' : actionGroup.id
